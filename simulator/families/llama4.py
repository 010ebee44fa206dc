"""Llama 4: chunked attention on rotary layers, experts beside one shared expert."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.config import Config
from roofcast.simulator.families import patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.style import MoeStyle, Style, build, own_width


def chunk(config: Config) -> int | None:
    """Tokens of one attention chunk."""
    return patterns.window(config, "attention_chunk_size")


def llama4_kinds(config: Config) -> tuple[str, ...]:
    """The file's list, else: layers without rotary positions see everything, the rest their chunk."""
    given = config.names("layer_types", config.layers, patterns.KINDS)
    if given is not None:
        return given
    step = config.size("no_rope_layer_interval", 4)
    entries = config.wholes("no_rope_layers")
    rotary = config.wholes("no_rope_layers", config.layers) if entries else None
    if rotary is None:
        rotary = tuple(int((i + 1) % step != 0) for i in range(config.layers))
    chunked = config.optional_size("attention_chunk_size") is not None
    return tuple(patterns.CHUNKED if chunked and turns else patterns.FULL for turns in rotary)


def llama4_dense(config: Config) -> tuple[bool, ...]:
    """Experts in `moe_layers`, else in every `interleave_moe_layer_step`-th layer."""
    listed = config.wholes("moe_layers")
    step = config.size("interleave_moe_layer_step", 1)
    sparse = range(step - 1, config.layers, step) if listed is None else listed
    return tuple(i not in sparse for i in range(config.layers))


LLAMA4: Final = Style(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    kinds=llama4_kinds,
    window=chunk,
    mlp_prefix="feed_forward",
    moe=MoeStyle(
        width="intermediate_size",
        dense=llama4_dense,
        dense_width="intermediate_size_mlp",
        shared_width=own_width,
        router="feed_forward.router",
        experts="feed_forward.experts",
        shared="feed_forward.shared_expert",
    ),
)

FAMILIES: Final = (Family(("llama4_text", "llama4"), ("Llama4",), build(LLAMA4), "llama4_text"),)
