"""Llama-Nemotron (nemotron-nas, DeciLM): each block searched on its own.

Not in transformers; the rules are those of the checkpoints' own modeling_decilm.py.
"""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Core, Layer, Weight
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
from roofcast.simulator.families.style import LLAMA_NORMS

MULTIPLE_OF: Final = 256


def mlp_width(multiplier: float, hidden: int) -> int:
    """2/3 x multiplier x hidden, up to the next multiple of 256.

    >>> mlp_width(5.25, 8192)
    28672
    """
    width = int(2 * multiplier * hidden / 3)
    return -(-width // MULTIPLE_OF) * MULTIPLE_OF


def build_nemotron_nas(config: Config) -> Architecture:
    """The architecture of a nemotron-nas file, block by block."""
    blocks = config.items("block_configs", config.layers)
    if blocks is None:
        raise config.error("block_configs", "is missing, and no layer can be built without it")
    layers = []
    for i, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise config.error(f"block_configs[{i}]", "must be an object")
        fields = Config(block, {}, source=f"{config.source}: block_configs[{i}]", outer=block)
        layers.append(_layer(config, fields))
    tables, output = embeddings_and_head(config)
    return architecture(config, Body(tuple(layers), tables, output))


def _layer(config: Config, block: Config) -> Layer:
    hidden = config.size("hidden_size")
    mixer, mixed, cores = _mixer(config, block.section("attention"))
    ffn = block.section("ffn")
    fed = "none"
    mlp: tuple[Weight, ...] = ()
    if ffn.flag("replace_with_linear"):
        fed = "linear"
        mlp = (Weight("mlp.linear_mlp", "linear_mlp", "mlp", hidden, hidden, pieces=hidden),)
    elif not ffn.flag("no_op"):
        fed = "dense"
        width = mlp_width(ffn.number("ffn_mult"), hidden)
        mlp = parts.Mlp(hidden, width, bias=config.flag("mlp_bias")).weights()
    present = zip(LLAMA_NORMS, (mixed, mlp), strict=True)
    norms = parts.norms((norm for norm, block in present if block), hidden)
    return layer(f"{mixer}+{fed}", mixed, mlp, norms, cores=cores)


def _mixer(config: Config, block: Config) -> tuple[str, tuple[Weight, ...], tuple[Core, ...]]:
    """Attention with groups of its own, a single matrix in its place, or nothing."""
    if block.flag("no_op"):
        return "none", (), ()
    heads, hidden = config.size("num_attention_heads"), config.size("hidden_size")
    if block.flag("replace_with_linear"):
        linear = Weight("self_attn.linear_attn", "linear_attn", "attention", hidden, hidden)
        return "linear", (linear,), ()
    group, dim = block.size("n_heads_in_group"), head_dim(config, heads)
    if heads % group:
        raise block.error("n_heads_in_group", f"= {group} must divide {heads} heads")
    bias = config.flag("attention_bias")
    attention = parts.Attention(hidden, heads, heads // group, dim, dim, bias, bias)
    window = block.optional_size("window_length")
    kind = patterns.SLIDING if window else patterns.FULL
    return kind, attention.weights(), (attention.core(window=window),)


FAMILIES: Final = (
    Family(
        ("nemotron-nas", "deci"),
        ("DeciLM",),
        build_nemotron_nas,
        defaults_of="llama",
    ),
)
