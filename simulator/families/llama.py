"""Llama and its nearest kin: Mistral, Qwen2, Qwen3, Mixtral, Qwen3-MoE."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.config import Config
from roofcast.simulator.families import patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.style import MoeStyle, Style, build


def qwen_window(config: Config) -> int | None:
    """Qwen files carry a window that counts only where `use_sliding_window` is true."""
    size = patterns.window(config)
    return size if config.flag("use_sliding_window") else None


def sparse_steps(config: Config) -> tuple[bool, ...]:
    """Qwen's dense layers: those in `mlp_only_layers`, and those off `decoder_sparse_step`."""
    step = config.size("decoder_sparse_step", 1)
    only = frozenset(config.wholes("mlp_only_layers") or ())
    return tuple(i in only or (i + 1) % step != 0 for i in range(config.layers))


QWEN: Final = Style(
    qkv_bias=True, kinds=patterns.listed(patterns.late_windows), window=qwen_window, numerics=True
)
QWEN3: Final = Style(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    qk_norm="head",
    kinds=patterns.listed(patterns.late_windows),
    window=qwen_window,
    numerics=True,
)
QWEN3_MOE: Final = Style(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    qk_norm="head",
    kinds=patterns.all_windowed,
    window=qwen_window,
    moe=MoeStyle(dense=sparse_steps),
    numerics=True,
)

FAMILIES: Final = (
    Family(
        ("llama",),
        ("Llama", "LLaMA"),
        build(
            Style(
                qkv_bias="attention_bias",
                output_bias="attention_bias",
                mlp_bias="mlp_bias",
                numerics=True,
            )
        ),
    ),
    Family(("mistral",), ("Mistral",), build(Style(kinds=patterns.all_windowed, numerics=True))),
    Family(("qwen2",), ("Qwen2",), build(QWEN)),
    Family(("qwen3",), ("Qwen3",), build(QWEN3)),
    Family(("qwen3_moe",), ("Qwen3Moe",), build(QWEN3_MOE)),
    Family(
        ("mixtral",),
        ("Mixtral",),
        build(
            Style(
                kinds=patterns.all_windowed,
                moe=MoeStyle(
                    width="intermediate_size",
                    router="block_sparse_moe.gate",
                    experts="block_sparse_moe.experts",
                    names=("w1", "w3", "w2"),
                ),
                numerics=True,
            )
        ),
    ),
)
