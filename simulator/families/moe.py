"""Grouped-query decoders with mixture-of-experts layers."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.config import Config
from roofcast.simulator.families import patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.llama import ALL_ATTENTION, LAYERNORM_NAMES
from roofcast.simulator.families.mistral import MIXTRAL_MOE
from roofcast.simulator.families.mtp import Mtp
from roofcast.simulator.families.style import MoeStyle, Style, build, shared_experts


def ernie_dense(config: Config) -> tuple[bool, ...]:
    """ERNIE: experts from `moe_layer_start_index` to `..._end_index`, every `moe_layer_interval`."""
    first = config.count("moe_layer_start_index", 1)
    last = config.raw("moe_layer_end_index", -1)
    end = config.layers - 1 if last in (-1, None) else config.count("moe_layer_end_index")
    step = config.size("moe_layer_interval", 1)
    return tuple(not ((i + 1) % step == 0 and first <= i <= end) for i in range(config.layers))


def hunyuan_shared(config: Config) -> int:
    """Hunyuan: one shared MLP of the experts' width, as transformers builds it."""
    config.ignore("moe_intermediate_size", "num_shared_expert", "use_mixed_mlp_moe")
    config.ignore("use_qk_norm", "attention_head_dim")
    return config.size("intermediate_size")


def granite_shared(config: Config) -> int:
    """Granite: a shared expert of its own width, none where that is 0."""
    return config.count("shared_intermediate_size")


GRANITE_MOE: Final = MoeStyle(
    width="intermediate_size",
    router="block_sparse_moe.router.layer",
    experts="block_sparse_moe",
    names=("input_linear", "input_linear", "output_linear"),
)
GLM4_MOE: Final = Style(
    qkv_bias=ALL_ATTENTION,
    qk_norm="head",
    qk_norm_switch="use_qk_norm",
    moe=MoeStyle(dense=patterns.first_dense, shared_width=shared_experts),
    mtp=Mtp(),
)

FAMILIES: Final = (
    Family(
        ("phimoe",),
        ("PhiMoE", "Phimoe"),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                head_bias="lm_head_bias",
                norm="layer",
                kinds=patterns.all_windowed,
                moe=MIXTRAL_MOE,
            )
        ),
    ),
    Family(
        ("olmoe",),
        ("Olmoe", "OlmoE"),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="projection",
                moe=MoeStyle(width="intermediate_size"),
            )
        ),
    ),
    Family(
        ("gpt_oss",),
        ("GptOss",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                sinks="self_attn.sinks",
                kinds=patterns.listed(patterns.every(2, field="")),
                moe=MoeStyle(
                    width="intermediate_size",
                    expert_bias=True,
                    router_bias=True,
                    router="mlp.router",
                    names=("gate_up_proj", "gate_up_proj", "down_proj"),
                ),
            )
        ),
    ),
    Family(
        ("granitemoe",),
        ("GraniteMoe",),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, moe=GRANITE_MOE)),
    ),
    Family(
        ("minimax_m2",),
        ("MiniMaxM2",),
        build(
            Style(
                qk_norm="projection",
                moe=MIXTRAL_MOE,
                understood=("use_qk_norm", "attn_type_list", "use_mtp", "mtp_transformer_layers"),
            )
        ),
    ),
    Family(("glm4_moe",), ("Glm4Moe",), build(GLM4_MOE)),
    Family(
        ("dots1",),
        ("Dots1",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="head",
                kinds=patterns.listed(patterns.windows_from),
                moe=MoeStyle(dense=patterns.first_dense, shared_width=shared_experts),
            )
        ),
    ),
    Family(
        ("ernie4_5_moe",),
        ("Ernie4_5_Moe", "Ernie4_5_MoE", "Ernie4_5Moe"),
        build(
            Style(
                qkv_bias="use_bias",
                output_bias="use_bias",
                mlp_bias="use_bias",
                head_bias="use_bias",
                moe=MoeStyle(
                    dense=ernie_dense,
                    shared_width=shared_experts,
                    shared_bias="use_bias",
                    router_bias=True,
                ),
            )
        ),
    ),
    Family(
        ("hunyuan_v1_moe",),
        ("HunYuanMoEV1",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="head",
                names=LAYERNORM_NAMES,
                moe=MoeStyle(
                    width="intermediate_size",
                    shared_width=hunyuan_shared,
                    router="mlp.gate.wg",
                    shared="mlp.shared_mlp",
                ),
            )
        ),
    ),
)
