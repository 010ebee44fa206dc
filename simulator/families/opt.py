"""OPT: learned positions offset by two, and in the 350M model embeddings of another width."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Numerics, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import Body, Family, architecture, layer
from roofcast.simulator.families.numerics import LAYER_NORM_EPS, activation
from roofcast.simulator.families.style import plain_head_dim

# The table holds this many rows before position 0 (transformers, OPTLearnedPositionalEmbedding).
POSITION_OFFSET: Final = 2


def build_opt(config: Config) -> Architecture:
    """The architecture of an OPT file."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    bias = config.flag("enable_bias", True)
    kind: parts.NormKind = "layer" if config.flag("layer_norm_elementwise_affine", True) else "none"
    dim = plain_head_dim(config, heads)
    attention = parts.Attention(
        hidden, heads, heads, dim, dim, bias, bias, names=parts.Names(o="self_attn.out_proj")
    )
    width = config.size("intermediate_size")
    mlp = parts.Mlp(hidden, width, gated=False, bias=bias, prefix="", names=("", "fc1", "fc2"))
    block = layer(
        f"{patterns.FULL}+dense",
        attention.weights(),
        mlp.weights(),
        parts.norms(("self_attn_layer_norm", "final_layer_norm"), hidden, kind),
        cores=(attention.core(),),
    )
    tables, output = _around(config, hidden, kind)
    numerics = Numerics(
        norm="layernorm",
        norm_eps=LAYER_NORM_EPS,
        activation=activation(config),
        gated_mlp=False,
        rope_theta=None,
        position_offset=POSITION_OFFSET,
    )
    # Not OPT-350M, which normalises after its blocks and projects its embeddings.
    runs = kind == "layer" and output[0].op == "norm" and len(tables) == 2
    layers = (block,) * config.layers
    return architecture(config, Body(layers, tables, output, numerics=numerics if runs else None))


def _around(
    config: Config, hidden: int, kind: parts.NormKind
) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """Embedding tables and head, with the projections between the two widths where they differ."""
    vocab, at = config.size("vocab_size"), "model.decoder"
    width = config.optional_size("word_embed_proj_dim") or hidden
    positions = config.size("max_position_embeddings") + POSITION_OFFSET
    tables: tuple[Weight, ...] = (
        parts.embedding(vocab, width, f"{at}.embed_tokens"),
        parts.embedding(positions, hidden, f"{at}.embed_positions"),
    )
    output: tuple[Weight, ...] = ()
    final = config.flag("do_layer_norm_before", True)
    if final and not config.flag("_remove_final_layer_norm"):
        output += parts.norm(f"{at}.final_layer_norm", hidden, kind)
    if width != hidden:
        tables += (Weight(f"{at}.project_in", "project_in", "embeddings", hidden, width),)
        output += (Weight(f"{at}.project_out", "project_out", "lm_head", width, hidden),)
    return tables, output + parts.head(vocab, width, tied=config.tied())


FAMILIES: Final = (Family(("opt",), ("OPT",), build_opt, layers_at="model.decoder.layers"),)
