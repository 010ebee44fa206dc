"""MiniMax-Text-01 and M1: lightning attention, full attention in some layers, experts in each."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Layer
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    head_dim,
    layer,
)
from roofcast.simulator.families.hybrid import LINEAR, gqa, mixers, stack, top_k
from roofcast.simulator.families.mixers import Lightning
from roofcast.simulator.families.patterns import FULL
from roofcast.simulator.families.style import LLAMA_NORMS

IGNORED: Final = (
    "block_size",
    "rotary_dim",
    "postnorm",
    "shared_moe_mode",
    "attn_type_list",
    "layernorm_full_attention_alpha",
    "layernorm_full_attention_beta",
    "layernorm_linear_attention_alpha",
    "layernorm_linear_attention_beta",
    "layernorm_mlp_alpha",
    "layernorm_mlp_beta",
    "full_attn_alpha_factor",
    "full_attn_beta_factor",
    "linear_attn_alpha_factor",
    "linear_attn_beta_factor",
    "mlp_alpha_factor",
    "mlp_beta_factor",
)


def build(config: Config) -> Architecture:
    """The model of a MiniMax file, original or converted."""
    if config.count("shared_intermediate_size"):
        raise config.error("shared_intermediate_size", "must be 0: no such shared expert is known")
    kinds = mixers(config, (LINEAR, FULL), lambda: _kinds(config))
    config.ignore(*IGNORED)
    layers = stack(kinds, lambda kind: _layer(config, kind))
    tables, output = embeddings_and_head(config)
    return architecture(config, Body(layers, tables, output))


def _kinds(config: Config) -> tuple[str, ...]:
    """Original files list 0 (lightning) and 1 (full); the class default alternates, full first."""
    given = config.wholes("attn_type_list", config.layers)
    if given is None:
        return tuple(LINEAR if i % 2 else FULL for i in range(config.layers))
    if set(given) - {0, 1}:
        raise config.error("attn_type_list", "must be made of 0 (lightning) and 1 (full)")
    return tuple(FULL if entry else LINEAR for entry in given)


def _layer(config: Config, kind: str) -> Layer:
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    count = config.size("num_experts")
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count),
        config.size("intermediate_size"),
        router="block_sparse_moe.gate",
        experts="block_sparse_moe.experts",
        names=("w1", "w3", "w2"),
    )
    rest = moe.weights(), parts.norms(LLAMA_NORMS, hidden)
    if kind == LINEAR:
        mixer = Lightning(hidden, heads, head_dim(config, heads))
        cores = (mixer.core(),)
        return layer(f"{kind}+moe", mixer.weights(), *rest, cores=cores, experts=moe.routed())
    attention = gqa(config)
    core = attention.core(window=patterns.window(config))
    return layer(f"{kind}+moe", attention.weights(), *rest, cores=(core,), experts=moe.routed())


FAMILIES: Final = (
    Family(
        ("minimax", "minimax_text_01", "minimax_m1"),
        ("MiniMax", "MiniMaxText01", "MiniMaxM1"),
        build,
        defaults_of="minimax",
    ),
)
