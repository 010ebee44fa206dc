"""Gemma 4: two head sizes, keys reused as values, shared caches, experts beside a dense MLP."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Experts, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    kv_heads,
    layer,
)
from roofcast.simulator.families.gemma3n import NORMS
from roofcast.simulator.families.gemma_per_layer import (
    per_layer_gate,
    per_layer_tables,
    reusing,
)
from roofcast.simulator.families.hybrid import stack, top_k

MOE_NORMS: Final = (
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "pre_feedforward_layernorm_2",
)
GLOBAL_HEAD_DIM: Final = 512


def build(config: Config) -> Architecture:
    """The model of a gemma4 text file."""
    if config.raw("use_bidirectional_attention", None) == "all":
        raise config.error("use_bidirectional_attention", "is 'all': an encoder does not decode")
    if config.raw("per_layer_config", None) is not None:
        raise config.error("per_layer_config", "is not supported; give global_head_dim instead")
    given = patterns.listed(patterns.every(6, ""))(config)
    kinds = (*given[:-1], patterns.FULL)  # the class makes the last layer full whatever it says
    keys = zip(kinds, reusing(config, kinds), strict=True)
    layers = stack(keys, lambda key: _layer(config, *key))
    width = config.optional_size("hidden_size_per_layer_input")
    tables, output = embeddings_and_head(config)
    if width:
        tables += per_layer_tables(config, width)
    config.ignore("vocab_size_per_layer_input", "expert_intermediate_size")
    return architecture(config, Body(layers, tables, output))


def _layer(config: Config, kind: str, reuses: bool) -> Layer:
    hidden = config.size("hidden_size")
    attention = _attention(config, kind, reuses)
    doubled = 2 if reuses and config.flag("use_double_wide_mlp") else 1
    mlp = parts.Mlp(hidden, config.size("intermediate_size") * doubled)
    window = patterns.window(config) if kind == patterns.SLIDING else None
    extra = config.optional_size("hidden_size_per_layer_input")
    name, block, experts = _experts(config)
    return layer(
        f"{kind}{'_shared_kv' if reuses else ''}+{name}",
        attention.weights(),
        mlp.weights(),
        block,
        parts.norms(NORMS, hidden),
        per_layer_gate(hidden, extra) if extra else (),
        cores=(attention.core(window=window),),
        experts=experts,
    )


def _attention(config: Config, kind: str, reuses: bool) -> parts.Attention:
    """Full layers have their own head size and, where keys serve as values, their own KV heads."""
    heads, full = config.size("num_attention_heads"), kind == patterns.FULL
    dim = config.size("head_dim")
    same = config.flag("attention_k_eq_v") and full
    kv = kv_heads(config, heads)
    config.ignore("global_head_dim", "num_global_key_value_heads")
    if full:
        dim = config.size("global_head_dim", GLOBAL_HEAD_DIM)
    if same:
        kv = config.size("num_global_key_value_heads", kv)
    if heads % kv:
        raise config.error("num_global_key_value_heads", f"= {kv} must divide {heads} heads")
    bias = config.flag("attention_bias")
    return parts.Attention(
        hidden=config.size("hidden_size"),
        query_heads=heads,
        kv_heads=kv,
        key_dim=dim,
        value_dim=dim,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
        own_kv=not reuses,
        value_is_key=same,
    )


def _experts(config: Config) -> tuple[str, tuple[Weight, ...], Experts | None]:
    """Experts in parallel with the dense MLP, with a scaled router and three more norms."""
    if not config.flag("enable_moe_block"):
        config.ignore(
            "num_experts", "num_experts_per_tok", "moe_intermediate_size", "top_k_experts"
        )
        return "dense", (), None
    hidden, count = config.size("hidden_size"), config.size("num_experts")
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count),
        config.size("moe_intermediate_size"),
        router="router.proj",
        experts="experts",
    )
    scales = (
        parts.vector("router.scale", hidden, "router", op="router"),
        parts.vector("router.per_expert_scale", count, "router", op="router"),
    )
    weights = moe.weights() + scales + parts.norms(MOE_NORMS, hidden)
    return "dense+moe", weights, moe.routed()


FAMILIES: Final = (
    Family(
        ("gemma4_text", "gemma4"),
        ("Gemma4",),
        build,
        defaults_of="gemma4_text",
        layers_at="model.language_model.layers",
    ),
    Family(
        ("gemma4_unified_text", "gemma4_unified"),
        ("Gemma4Unified",),
        build,
        defaults_of="gemma4_unified_text",
        # The class builds neither experts nor per-layer embeddings.
        defaults={"enable_moe_block": False, "hidden_size_per_layer_input": 0},
        layers_at="model.language_model.layers",
    ),
)
