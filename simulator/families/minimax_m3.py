"""MiniMax-M3: grouped-query attention over key blocks that a small indexer selects."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, Indexer, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    head_dim,
    kv_heads,
    layer,
)
from roofcast.simulator.families.llama import FUSED_MLP
from roofcast.simulator.families.mistral import MIXTRAL_MOE
from roofcast.simulator.families.style import moe_of

SPARSE: Final = "minimax_m3_sparse"


def sparse_layers(config: Config) -> tuple[bool, ...]:
    """Layers with an indexer: by `layer_types`, else by `sparse_attention_freq`, else none."""
    given = config.names("layer_types", config.layers, (*patterns.KINDS, SPARSE))
    if given is not None:
        return tuple(kind == SPARSE for kind in given)
    frequency = config.section("sparse_attention_config").wholes("sparse_attention_freq")
    if frequency is None:
        return (False,) * config.layers
    if len(frequency) != config.layers:
        raise config.error(
            "sparse_attention_freq", f"has {len(frequency)} entries for {config.layers} layers"
        )
    return tuple(bool(sparse) for sparse in frequency)


def dense_layers(config: Config) -> tuple[bool, ...]:
    """Layers with a plain MLP: by `mlp_layer_types`, else by `moe_layer_freq`, else none."""
    given = config.names("mlp_layer_types", config.layers, ("dense", "sparse"))
    frequency = config.wholes("moe_layer_freq", config.layers)
    config.ignore(
        "first_k_dense_replace", "n_shared_experts", "moe_intermediate_size", "use_qk_norm"
    )
    if given is not None:
        return tuple(kind == "dense" for kind in given)
    return tuple(not sparse for sparse in frequency or (1,) * config.layers)


def build_minimax_m3(config: Config) -> Architecture:
    """The architecture of a MiniMax-M3 file."""
    recipes = tuple(zip(sparse_layers(config), dense_layers(config), strict=True))
    built = {recipe: _layer(config, *recipe) for recipe in dict.fromkeys(recipes)}
    tables, output = embeddings_and_head(config)
    return architecture(config, Body(tuple(built[recipe] for recipe in recipes), tables, output))


def _layer(config: Config, sparse: bool, dense: bool) -> Layer:
    heads = config.size("num_attention_heads")
    hidden, dim = config.size("hidden_size"), head_dim(config, heads)
    attention = parts.Attention(hidden, heads, kv_heads(config, heads), dim, dim, qk_norm="head")
    weights, core = attention.weights(), attention.core()
    if sparse:
        indexer, selected = _indexer(config)
        core = attention.core(selected=selected, indexer=indexer)
        weights += _indexer_weights(hidden, indexer)
    around = parts.norms(("input_layernorm", "post_attention_layernorm"), hidden)
    kind = "sparse_attention" if sparse else patterns.FULL
    if dense:
        width = config.size("dense_intermediate_size")
        mlp = parts.Mlp(hidden, width, names=FUSED_MLP).weights()
        return layer(f"{kind}+dense", weights, mlp, around, cores=(core,))
    moe = moe_of(_MOE, config, config.size("num_experts_per_tok"))
    experts = moe.routed()
    return layer(f"{kind}+moe", weights, moe.weights(), around, cores=(core,), experts=experts)


def _indexer(config: Config) -> tuple[Indexer, int]:
    """The indexer and how many tokens its best blocks hold; older files nest and rename the sizes."""
    old = config.section("sparse_attention_config")

    def size(name: str, old_name: str) -> int:
        return old.size(old_name) if old.has(old_name) else config.size(name)

    dim = size("index_head_dim", "sparse_index_dim")
    heads = size("index_n_heads", "sparse_num_index_heads")
    blocks = size("index_topk_blocks", "sparse_topk_blocks")
    block = size("index_block_size", "sparse_block_size")
    return Indexer(heads, dim, dim, weighs_heads=False), blocks * block


def _indexer_weights(hidden: int, indexer: Indexer) -> tuple[Weight, ...]:
    at, dim = "self_attn.indexer", indexer.dim
    return (
        Weight(f"{at}.q_proj", "indexer_proj", "indexer", indexer.heads * dim, hidden),
        Weight(f"{at}.k_proj", "indexer_proj", "indexer", indexer.key_dim, hidden),
        parts.vector(f"{at}.q_norm", dim, "indexer"),
        parts.vector(f"{at}.k_norm", dim, "indexer"),
    )


def shared_width(config: Config) -> int:
    """The shared expert's width."""
    return config.count("shared_intermediate_size")


_MOE: Final = replace(MIXTRAL_MOE, shared_width=shared_width)

FAMILIES: Final = (
    Family(
        ("minimax_m3", "minimax_m3_vl_text", "minimax_m3_vl"),
        ("MiniMaxM3", "MiniMaxM3VL", "MiniMaxM3Sparse"),
        build_minimax_m3,
        "minimax_m3_vl_text",
    ),
)
