"""OLMo Hybrid: Gated DeltaNet layers normed before, full-attention layers normed after."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Layer
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import LINEAR, gqa, mixers, stack
from roofcast.simulator.families.mixers import DeltaNet
from roofcast.simulator.families.patterns import FULL

BEFORE: Final = ("input_layernorm", "post_attention_layernorm")
AFTER: Final = ("post_attention_layernorm", "post_feedforward_layernorm")


def build(config: Config) -> Architecture:
    """The model of an olmo_hybrid file."""
    kinds = mixers(config, (LINEAR, FULL), lambda: _fourths(config))
    config.ignore("linear_allow_neg_eigval", "linear_a_log_min", "linear_a_log_max")
    config.ignore("linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    layers = stack(kinds, lambda kind: _layer(config, kind))
    tables, output = embeddings_and_head(config)
    return architecture(config, Body(layers, tables, output))


def _fourths(config: Config) -> tuple[str, ...]:
    """Full attention every fourth layer, and in the last one of a stack too short for that."""
    kinds = tuple(FULL if i % 4 == 3 else LINEAR for i in range(config.layers))
    return kinds if FULL in kinds else (*kinds[:-1], FULL)


def _layer(config: Config, kind: str) -> Layer:
    hidden = config.size("hidden_size")
    mlp = parts.Mlp(hidden, config.size("intermediate_size")).weights()
    if kind == FULL:
        bias = config.flag("attention_bias")
        attention = gqa(config, bias=bias, qk_norm="projection")
        weights = attention.weights(), mlp, parts.norms(AFTER, hidden)
        return layer(f"{kind}+dense", *weights, cores=(attention.core(),))
    mixer = _delta_net(config)
    weights = mixer.weights(), mlp, parts.norms(BEFORE, hidden)
    return layer(f"{kind}+dense", *weights, cores=(mixer.core(),))


def _delta_net(config: Config) -> DeltaNet:
    """Heads as in attention, three quarters of the hidden size in keys, twice that in values."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    key_heads = config.size("linear_num_key_heads", heads)
    value_heads = config.size("linear_num_value_heads", heads)
    key_dim = config.size("linear_key_head_dim", max(1, int(0.75 * hidden / key_heads)))
    value_dim = config.size("linear_value_head_dim", 2 * key_dim)
    keys, values = key_heads * key_dim, value_heads * value_dim
    return DeltaNet(
        hidden=hidden,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        kernel=config.size("linear_conv_kernel_dim"),
        projections=(
            ("q_proj", keys),
            ("k_proj", keys),
            ("v_proj", values),
            ("a_proj", value_heads),
            ("b_proj", value_heads),
            ("g_proj", values),
        ),
        output="o_proj",
        norm="o_norm",
    )


FAMILIES: Final = (Family(("olmo_hybrid",), ("OlmoHybrid",), build),)
