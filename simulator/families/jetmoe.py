"""JetMoE: attention heads are experts too: each token picks query and output matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, AttentionCore, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import top_k
from roofcast.simulator.families.style import LLAMA_NORMS

AT: Final = "self_attention.experts"


def build(config: Config) -> Architecture:
    """The model of a jetmoe file; query heads follow from KV heads and the experts picked."""
    config.ignore("num_attention_heads")
    tables, output = embeddings_and_head(config)
    return architecture(config, Body((_layer(config),) * config.layers, tables, output))


def _layer(config: Config) -> Layer:
    """Both expert blocks as one: as many experts, picked as often, so all expectations agree."""
    hidden, count = config.size("hidden_size"), config.size("num_experts")
    picked = top_k(config, count)
    kv_heads, dim = config.size("num_key_value_heads"), config.size("kv_channels")
    rows = kv_heads * dim
    moe = parts.Moe(
        hidden,
        count,
        picked,
        config.size("intermediate_size"),
        router="mlp.router.layer",
        experts="mlp",
        names=("input_linear", "input_linear", "output_linear"),
    )
    routed = moe.routed()
    # The output bias belongs to the experts module: each expert carries its share.
    if hidden % count:
        raise config.error("hidden_size", f"= {hidden} must be a multiple of {count} experts")
    attention = (
        Weight(f"{AT}.input_linear", "experts_query", "experts", rows, hidden, pieces=kv_heads),
        Weight(f"{AT}.output_linear", "experts_output", "experts", hidden, rows, pieces=kv_heads),
        Weight(f"{AT}.bias", "experts_output", "experts", hidden // count, use="vector"),
    )
    return layer(
        "moe_attention+moe",
        (
            Weight(f"{AT}.router.layer", "attention_router", "router", count, hidden),
            Weight(
                "self_attention.kv_proj", "kv_proj", "attention", 2 * rows, hidden, pieces=kv_heads
            ),
        ),
        moe.weights(),
        (parts.vector("mlp.bias", hidden, "mlp", op="experts_down"),),
        parts.norms(LLAMA_NORMS, hidden),
        cores=(AttentionCore(kv_heads * picked, kv_heads, dim, dim),),
        experts=replace(routed, weights=attention + routed.weights),
    )


FAMILIES: Final = (Family(("jetmoe",), ("JetMoe", "JetMoE"), build),)
