"""Qwen 2, 2.5 and 3, dense, mixture-of-experts and vision-language."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.config import Config
from roofcast.simulator.families import patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.mtp import Mtp
from roofcast.simulator.families.style import MoeStyle, Style, build

BIAS: Final = "attention_bias"


def qwen_window(config: Config) -> int | None:
    """Qwen files carry a window that counts only where `use_sliding_window` is true."""
    size = patterns.window(config)
    return size if config.flag("use_sliding_window") else None


def early_odd_windows(config: Config) -> tuple[str, ...]:
    """Qwen2-MoE: of the first `max_window_layers`, every other layer slides."""
    slides = config.flag("use_sliding_window")
    last = config.count("max_window_layers", config.layers)
    return tuple(
        patterns.SLIDING if slides and (i + 1) % 2 and i < last else patterns.FULL
        for i in range(config.layers)
    )


def sparse_steps(config: Config) -> tuple[bool, ...]:
    """Qwen's dense layers: those in `mlp_only_layers`, and those off `decoder_sparse_step`."""
    step = config.size("decoder_sparse_step", 1)
    only = frozenset(config.wholes("mlp_only_layers") or ())
    has_experts = config.count("num_experts") > 0
    config.ignore("intermediate_size", "max_window_layers")
    return tuple(not has_experts or i in only or (i + 1) % step != 0 for i in range(config.layers))


def shared_width(config: Config) -> int:
    """Qwen's shared expert has a width of its own."""
    return config.size("shared_expert_intermediate_size")


QWEN2: Final = Style(
    qkv_bias=True,
    kinds=patterns.listed(patterns.late_windows),
    window=qwen_window,
    runs=True,
)
QWEN3: Final = Style(
    qkv_bias=BIAS,
    output_bias=BIAS,
    qk_norm="head",
    kinds=patterns.listed(patterns.late_windows),
    window=qwen_window,
    runs=True,
)
QWEN3_MOE: Final = Style(
    qkv_bias=BIAS,
    output_bias=BIAS,
    qk_norm="head",
    kinds=patterns.all_windowed,
    window=qwen_window,
    moe=MoeStyle(dense=sparse_steps),
    understood=("use_qk_norm",),
    runs=True,
)
QWEN3_VL: Final = Style(qkv_bias=BIAS, output_bias=BIAS, qk_norm="head")
QWEN3_VL_MOE: Final = Style(
    qkv_bias=BIAS, output_bias=BIAS, qk_norm="head", moe=MoeStyle(dense=sparse_steps)
)
QWEN2_MOE: Final = Style(
    qkv_bias="qkv_bias",
    kinds=patterns.listed(early_odd_windows),
    window=qwen_window,
    moe=MoeStyle(
        dense=sparse_steps, shared_width=shared_width, shared_gate=True, shared="mlp.shared_expert"
    ),
    runs=True,
)
MIMO_MTP: Final = Mtp("input_proj", ("token_layernorm", "hidden_layernorm", "final_layernorm"))

FAMILIES: Final = (
    Family(("qwen2",), ("Qwen2",), build(QWEN2)),
    Family(
        ("mimo",),
        ("MiMo",),
        build(
            Style(
                qkv_bias=True,
                kinds=patterns.listed(patterns.late_windows),
                window=qwen_window,
                mtp=MIMO_MTP,
                understood=("attention_bias",),
            )
        ),
        defaults_of="qwen2",
    ),
    Family(("qwen2_moe",), ("Qwen2Moe",), build(QWEN2_MOE)),
    Family(("qwen3",), ("Qwen3",), build(QWEN3)),
    Family(("qwen3_moe",), ("Qwen3Moe",), build(QWEN3_MOE)),
    Family(("qwen3_vl_text",), ("Qwen3VL",), build(QWEN3_VL)),
    Family(("qwen3_vl_moe_text",), ("Qwen3VLMoe",), build(QWEN3_VL_MOE)),
)
