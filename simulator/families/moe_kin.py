"""More grouped-query decoders with mixture-of-experts layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.config import Config
from roofcast.simulator.families import patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.llama import ALL_ATTENTION, POST_NORMS, exaone4_kinds
from roofcast.simulator.families.llama_kin import first_of_four
from roofcast.simulator.families.moe import GLM4_MOE, GRANITE_MOE, granite_shared
from roofcast.simulator.families.mtp import Mtp
from roofcast.simulator.families.qwen import QWEN3_MOE
from roofcast.simulator.families.style import MoeStyle, Style, build, fixed, shared_experts


def afmoe_dense(config: Config) -> tuple[bool, ...]:
    """The first `num_dense_layers` layers are dense."""
    first = config.count("num_dense_layers")
    return tuple(i < first for i in range(config.layers))


def one_dense(config: Config) -> tuple[bool, ...]:
    """The first layer is dense unless the file lists the layers."""
    if config.has("mlp_layer_types"):
        return patterns.first_dense(config)
    return tuple(i == 0 for i in range(config.layers))


def narrow_shared(config: Config) -> int:
    """Shared experts as wide as the routed ones, in files with one width for both."""
    return config.count("n_shared_experts") * config.size("intermediate_size")


def cohere_kinds(config: Config) -> tuple[str, ...]:
    """The dense layers at the start have a window pattern of their own."""
    first = min(config.count("first_k_dense_replace"), config.layers)
    early = config.size("prefix_dense_sliding_window_pattern", 1)
    later = config.size("sliding_window_pattern", 4)
    steps = [(i, early) for i in range(first)] + [(i, later) for i in range(config.layers - first)]
    return tuple(patterns.SLIDING if (i + 1) % step else patterns.FULL for i, step in steps)


SHARED_GRANITE: Final = replace(GRANITE_MOE, shared_width=granite_shared, shared="shared_mlp")

FAMILIES: Final = (
    Family(
        ("granitemoeshared",),
        ("GraniteMoeShared",),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, moe=SHARED_GRANITE)),
    ),
    Family(
        ("granitemoe_swa",),
        ("GraniteMoeSWA",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                moe=SHARED_GRANITE,
                sinks="self_attn.sinks",
                kinds=patterns.listed(first_of_four),
            )
        ),
    ),
    Family(
        ("afmoe",),
        ("Afmoe", "AfMoE"),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="head",
                gate="self_attn.gate_proj",
                norms=fixed(
                    "input_layernorm",
                    "post_attention_layernorm",
                    "pre_mlp_layernorm",
                    "post_mlp_layernorm",
                ),
                kinds=patterns.listed(patterns.every(4, "global_attn_every_n_layers")),
                moe=MoeStyle(
                    dense=afmoe_dense,
                    shared_width=shared_experts,
                    router_bias=True,
                    router="mlp.router.gate",
                ),
            )
        ),
    ),
    Family(
        ("flex_olmo",),
        ("FlexOlmo",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="projection",
                norms=POST_NORMS,
                moe=MoeStyle(width="intermediate_size"),
            )
        ),
    ),
    Family(
        ("solar_open",),
        ("SolarOpen",),
        build(Style(qkv_bias=ALL_ATTENTION, moe=MoeStyle(shared_width=shared_experts))),
    ),
    Family(("sarvam_moe",), ("SarvamMoE",), build(GLM4_MOE)),
    Family(
        ("glm4v_moe_text",),
        ("Glm4vMoe",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                moe=MoeStyle(dense=patterns.first_dense, shared_width=shared_experts),
            )
        ),
    ),
    Family(
        ("exaone_moe",),
        ("ExaoneMoe", "ExaoneMoE"),
        build(
            Style(
                qk_norm="head",
                kinds=exaone4_kinds,
                mtp=Mtp(),
                moe=MoeStyle(dense=patterns.first_dense, shared_width=shared_experts),
            )
        ),
    ),
    Family(
        ("hy_v3",),
        ("HYV3",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                mlp_bias="mlp_bias",
                qk_norm="head",
                moe=MoeStyle(dense=one_dense, shared_width=shared_experts, shared_bias="mlp_bias"),
            )
        ),
    ),
    Family(
        ("cohere2_moe",),
        ("Cohere2Moe",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                norm="layer_no_bias",
                norms=fixed("input_layernorm"),
                kinds=patterns.listed(cohere_kinds),
                moe=MoeStyle(
                    width="intermediate_size",
                    dense=patterns.first_dense,
                    dense_width="prefix_dense_intermediate_size",
                    shared_width=narrow_shared,
                ),
            )
        ),
    ),
    Family(("qwen3_omni_moe_text",), ("Qwen3OmniMoe",), build(QWEN3_MOE)),
    Family(
        ("aria_text",),
        ("Aria", "AriaText"),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                mlp_bias="mlp_bias",
                moe=MoeStyle(
                    width="intermediate_size",
                    shared_width=narrow_shared,
                    shared_bias="mlp_bias",
                    router="mlp.router",
                ),
            )
        ),
    ),
)
