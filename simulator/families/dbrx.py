"""DBRX: sizes nested in `attn_config` and `ffn_config`."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.gpt import fused
from roofcast.simulator.families.style import plain_head_dim


def build_dbrx(config: Config) -> Architecture:
    """The architecture of a DBRX file."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    dim = plain_head_dim(config, heads)
    groups = config.section("attn_config").size("kv_n_heads", 1)
    ffn = config.section("ffn_config")
    if heads % groups:
        raise config.error("attn_config.kv_n_heads", f"= {groups} must divide n_heads = {heads}")
    attention = parts.Attention(
        hidden, heads, groups, dim, dim, names=fused("Wqkv", "out_proj", "norm_attn_norm.attn")
    )
    # Class defaults of DbrxFFNConfig, transformers 5.24.0.
    moe = parts.Moe(
        hidden,
        ffn.size("moe_num_experts", 4),
        ffn.size("moe_top_k", 1),
        ffn.size("ffn_hidden_size", 3584),
        router="ffn.router.layer",
        experts="ffn.experts.mlp",
        names=("w1", "v1", "w2"),
    )
    around = parts.norms(
        ("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"), hidden, "layer_no_bias"
    )
    block = layer(
        f"{patterns.FULL}+moe",
        attention.weights(),
        moe.weights(),
        around,
        cores=(attention.core(),),
        experts=moe.routed(),
    )
    tables, output = embeddings_and_head(
        config, table="transformer.wte", final_norm="transformer.norm_f", norm="layer_no_bias"
    )
    return architecture(config, Body((block,) * config.layers, tables, output))


FAMILIES: Final = (Family(("dbrx",), ("Dbrx",), build_dbrx, layers_at="transformer.blocks"),)
