"""LFM2, LFM2-MoE and LFM3: gated short convolutions with a few attention layers."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Experts, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import gqa, mixers, stack, top_k
from roofcast.simulator.families.mixers import ShortConv
from roofcast.simulator.families.patterns import FULL, SLIDING, window

CONV: Final = "conv"
NORMS: Final = ("operator_norm", "ffn_norm")
NAMES: Final = parts.Names(
    o="self_attn.out_proj", q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm"
)
WIDE: Final = ("w1", "w3", "w2")


def build_dense(config: Config) -> Architecture:
    """LFM2: attention where `full_attn_idxs` says so, in every layer where it is absent."""

    def listed() -> tuple[str, ...]:
        full = config.wholes("full_attn_idxs")
        return tuple(FULL if full is None or i in full else CONV for i in range(config.layers))

    kinds = mixers(config, (FULL, CONV), listed)
    config.ignore("full_attn_idxs", "num_heads", "conv_dim", "conv_dim_out", "conv_use_xavier_init")
    config.ignore(
        "block_dim",
        "block_mlp_init_scale",
        "block_use_swiglu",
        "block_use_xavier_init",
        "block_norm_eps",
    )
    layers = stack(kinds, lambda kind: _layer(config, kind, _dense(config, _adjusted(config))))
    tables, output = embeddings_and_head(config, final_norm="model.embedding_norm")
    return architecture(config, Body(layers, tables, output))


def build_moe(config: Config) -> Architecture:
    """LFM2-MoE: the first `num_dense_layers` have a plain MLP."""

    def missing() -> tuple[str, ...]:
        raise config.error("layer_types", "is missing, and nothing else says where attention is")

    kinds = mixers(config, (FULL, CONV), missing)
    dense = config.count("num_dense_layers")
    config.ignore("use_expert_bias", "conv_dim", "conv_dim_out", "num_heads", "block_dim")
    keys = ((kind, i < dense) for i, kind in enumerate(kinds))

    def make(key: tuple[str, bool]) -> Layer:
        kind, is_dense = key
        plain = _dense(config, config.size("intermediate_size")) if is_dense else _moe(config)
        return _layer(config, kind, plain)

    tables, output = embeddings_and_head(config, final_norm="model.embedding_norm")
    return architecture(config, Body(stack(keys, make), tables, output))


def _adjusted(config: Config) -> int:
    """The MLP's built width: two thirds of what the file says, rounded up to a block.

    Source: Lfm2MLP in transformers 5.24.0; 12288 becomes 8192 for LFM2-1.2B.
    """
    width = config.optional_size("block_ff_dim") or config.size("intermediate_size")
    config.ignore("intermediate_size")
    multiplier = config.raw("block_ffn_dim_multiplier", None)
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    if multiplier is None:
        return width
    width = int(config.number("block_ffn_dim_multiplier") * width)
    block = config.size("block_multiple_of")
    return block * -(-width // block)


_Block = tuple[str, tuple[Weight, ...], Experts | None]


def _dense(config: Config, width: int) -> _Block:
    mlp = parts.Mlp(config.size("hidden_size"), width, prefix="feed_forward", names=WIDE)
    return "dense", mlp.weights(), None


def _moe(config: Config) -> _Block:
    count = config.size("num_experts")
    moe = parts.Moe(
        config.size("hidden_size"),
        count,
        top_k(config, count),
        config.size("moe_intermediate_size"),
        router="feed_forward.gate",
        experts="feed_forward.experts",
        names=WIDE,
    )
    return "moe", moe.weights(), moe.routed()


def _layer(config: Config, kind: str, block: _Block) -> Layer:
    hidden = config.size("hidden_size")
    mixer: parts.Attention | ShortConv = (
        gqa(config, names=NAMES, qk_norm="head")
        if kind == FULL
        else ShortConv(hidden, config.size("conv_L_cache"), config.flag("conv_bias"))
    )
    name, weights, experts = block
    return layer(
        f"{kind}+{name}",
        mixer.weights(),
        weights,
        parts.norms(NORMS, hidden),
        cores=(mixer.core(),),
        experts=experts,
    )


def build_lfm3(config: Config) -> Architecture:
    """LFM3: windowed and full attention between the convolutions, gated by head, normed twice."""
    third = {0: SLIDING, 2: FULL}

    def fourths() -> tuple[str, ...]:
        return tuple(CONV if i == 0 else third.get(i % 4, CONV) for i in range(config.layers))

    kinds = mixers(config, (FULL, SLIDING, CONV), fourths)
    layers = stack(kinds, lambda kind: _lfm3_layer(config, kind))
    tables, output = embeddings_and_head(config, final_norm="model.embedding_norm")
    return architecture(config, Body(layers, tables, output))


def _lfm3_layer(config: Config, kind: str) -> Layer:
    hidden = config.size("hidden_size")
    mlp = _dense(config, config.size("intermediate_size"))[1]
    sandwich = ("post_operator_norm", "post_ffn_norm") if config.flag("use_sandwich_norm") else ()
    rest = mlp, parts.norms((*NORMS, *sandwich), hidden)
    if kind == CONV:
        conv = ShortConv(hidden, config.size("conv_L_cache"), config.flag("conv_bias"))
        return layer(f"{kind}+dense", conv.weights(), *rest, cores=(conv.core(),))
    attention = gqa(config, bias=config.flag("attention_bias"), qk_norm="head")
    heads = attention.query_heads
    gate = Weight("self_attn.g_proj", "attention_gate", "attention", heads, hidden, pieces=heads)
    gates = (gate,) if config.flag("use_attention_gate") else ()
    core = attention.core(window=window(config) if kind == SLIDING else None)
    return layer(f"{kind}+dense", attention.weights(), gates, *rest, cores=(core,))


FAMILIES: Final = (
    Family(("lfm2", "lfm2_vl"), ("Lfm2",), build_dense, defaults_of="lfm2"),
    Family(("lfm2_moe",), ("Lfm2Moe",), build_moe),
    Family(("lfm3", "lfm3_vl"), ("Lfm3",), build_lfm3, defaults_of="lfm3"),
)
