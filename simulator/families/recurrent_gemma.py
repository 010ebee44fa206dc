"""RecurrentGemma (Griffin): gated linear recurrences with local attention every third layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, Layer
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import gqa, stack
from roofcast.simulator.families.mixers import RgLru

RECURRENT: Final = "recurrent"
ATTENTION: Final = "attention"
NORMS: Final = ("temporal_pre_norm", "channel_pre_norm")
_AT: Final = "temporal_block"
NAMES: Final = parts.Names(f"{_AT}.q_proj", f"{_AT}.k_proj", f"{_AT}.v_proj", f"{_AT}.o_proj")


def build(config: Config) -> Architecture:
    """The model of a recurrent_gemma file: `block_types` repeats over the layers."""
    pattern = config.names("block_types", None, (RECURRENT, ATTENTION))
    if not pattern:
        raise config.error("block_types", "must be a list of recurrent and attention")
    config.ignore("layer_types")
    kinds = (pattern[i % len(pattern)] for i in range(config.layers))
    layers = stack(kinds, lambda kind: _layer(config, kind))
    tables, output = embeddings_and_head(config, final_norm="model.final_norm")
    return architecture(config, Body(layers, tables, output))


def _layer(config: Config, kind: str) -> Layer:
    hidden = config.size("hidden_size")
    # intermediate_size is gate and up together.
    width = config.size("intermediate_size") // 2
    mlp = parts.Mlp(hidden, width, bias=True, prefix="mlp_block").weights()
    normed = parts.norms(NORMS, hidden)
    if kind == RECURRENT:
        mixer = _recurrence(config)
        return layer(f"{RECURRENT}+dense", mixer.weights(), mlp, normed, cores=(mixer.core(),))
    attention = replace(
        gqa(config, bias=config.flag("attention_bias"), names=NAMES), output_bias=True
    )
    core = attention.core(window=patterns.window(config, "attention_window_size"))
    return layer(f"{patterns.SLIDING}+dense", attention.weights(), mlp, normed, cores=(core,))


def _recurrence(config: Config) -> RgLru:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    width = config.size("lru_width", hidden)
    if width % heads:
        raise config.error(
            "lru_width", f"= {width} must be a multiple of num_attention_heads = {heads}"
        )
    return RgLru(hidden, width, heads, config.size("conv1d_width", 4))


FAMILIES: Final = (Family(("recurrent_gemma",), ("RecurrentGemma",), build),)
