"""More dense decoders of Llama's shape."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.gpt import two
from roofcast.simulator.families.llama import ALL_ATTENTION, FUSED, FUSED_MLP, LLAMA
from roofcast.simulator.families.qwen import QWEN2
from roofcast.simulator.families.style import Style, build, fixed, plain_head_dim


def xielu(config: Config) -> tuple[Weight, ...]:
    """Apertus learns two scalars of its activation in every layer."""
    if config.text("hidden_act", "xielu") != "xielu":
        return ()
    return tuple(
        parts.vector(f"mlp.act_fn.alpha_{sign}", 1, "mlp", op="activation") for sign in "pn"
    )


def lambdas(config: Config) -> tuple[Weight, ...]:
    """DiffLlama learns four vectors that weigh the difference of its two attentions."""
    dim = config.optional_size("head_dim")
    width = dim or plain_head_dim(config, config.size("num_attention_heads"))
    return tuple(
        parts.vector(f"self_attn.lambda_{name}", width, "attention", op="lambda")
        for name in ("q1", "k1", "q2", "k2")
    )


def first_of_four(config: Config) -> tuple[str, ...]:
    """Layers 0, 4, 8, ... are full, the rest slide (CWM, Granite SWA)."""
    return tuple(patterns.SLIDING if i % 4 else patterns.FULL for i in range(config.layers))


def hyperclova_norms(config: Config) -> tuple[str, ...]:
    """HyperCLOVA X normalises each block's output too where `use_post_norm` is true."""
    before = ("input_layernorm", "post_attention_layernorm")
    return (*before, "post_norm1", "post_norm2") if config.flag("use_post_norm") else before


QK_BIASES: Final = parts.Names(q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm")
GLM4V_NORMS: Final = fixed(
    "input_layernorm",
    "post_attention_layernorm",
    "post_self_attn_layernorm",
    "post_mlp_layernorm",
)

FAMILIES: Final = (
    Family(
        ("apertus",),
        ("Apertus",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="head",
                gated=False,
                norms=fixed("attention_layernorm", "feedforward_layernorm"),
                extra=xielu,
                mlp_names=two("up_proj", "down_proj"),
            )
        ),
    ),
    Family(("helium",), ("Helium",), build(Style(qkv_bias=ALL_ATTENTION, mlp_bias="mlp_bias"))),
    Family(("exaone",), ("Exaone",), build(LLAMA)),
    Family(
        ("internlm3",),
        ("InternLM3",),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, mlp_bias="mlp_bias")),
    ),
    Family(("iquestcoder",), ("IQuestCoder",), build(LLAMA)),
    Family(
        ("cwm",),
        ("Cwm", "CWM"),
        build(Style(mlp_bias="mlp_bias", kinds=patterns.listed(first_of_four))),
    ),
    Family(
        ("granite_swa",),
        ("GraniteSWA",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                mlp_bias="mlp_bias",
                sinks="self_attn.sinks",
                kinds=patterns.listed(first_of_four),
            )
        ),
    ),
    Family(
        ("vaultgemma",),
        ("VaultGemma",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                norms=fixed("input_layernorm", "pre_feedforward_layernorm"),
                kinds=patterns.listed(patterns.every(2, field="")),
            )
        ),
    ),
    Family(
        ("diffllama",),
        ("DiffLlama",),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, extra=lambdas)),
    ),
    Family(
        ("nanochat",),
        ("NanoChat",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                norm="none",
                gated=False,
                mlp_names=two("fc1", "fc2"),
            )
        ),
    ),
    Family(
        ("hyperclovax",),
        ("HyperCLOVAX",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                mlp_bias="mlp_bias",
                norms=hyperclova_norms,
            )
        ),
    ),
    Family(
        ("jais2",),
        ("Jais2",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                mlp_bias="mlp_bias",
                gated=False,
                norm="layer",
                mlp_names=two("up_proj", "down_proj"),
            )
        ),
    ),
    Family(
        ("chameleon",),
        ("Chameleon",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                mlp_bias="mlp_bias",
                qk_norm="projection_bias",
                head_dim=plain_head_dim,
            )
        ),
    ),
    Family(("qwen2_vl", "qwen2_vl_text"), ("Qwen2VL",), build(QWEN2), "qwen2_vl_text"),
    Family(("qwen2_5_vl", "qwen2_5_vl_text"), ("Qwen2_5_VL",), build(QWEN2), "qwen2_5_vl_text"),
    Family(("qwen2_5_omni_text",), ("Qwen2_5Omni",), build(QWEN2)),
    Family(
        ("glm4v_text",),
        ("Glm4v",),
        build(Style(qkv_bias=True, mlp_names=FUSED_MLP, norms=GLM4V_NORMS)),
    ),
    Family(
        ("phi4_multimodal", "phi4mm"),
        ("Phi4Multimodal", "Phi4MM"),
        build(Style(names=FUSED, mlp_names=FUSED_MLP, kinds=patterns.all_windowed)),
        "phi4_multimodal",
    ),
)
