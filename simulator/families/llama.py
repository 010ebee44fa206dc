"""Dense decoders closest to Llama: one switch or one norm away."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.numerics import gemma
from roofcast.simulator.families.style import Style, build, fixed

ALL_ATTENTION: Final = "attention_bias"
POST_NORMS: Final = fixed("post_attention_layernorm", "post_feedforward_layernorm")
SANDWICH: Final = fixed(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
FUSED: Final = parts.Names(q="self_attn.qkv_proj", k="self_attn.qkv_proj", v="self_attn.qkv_proj")
FUSED_MLP: Final = ("gate_up_proj", "gate_up_proj", "down_proj")
LAYERNORM_NAMES: Final = parts.Names(
    q_norm="self_attn.query_layernorm", k_norm="self_attn.key_layernorm"
)

LLAMA: Final = Style(
    qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, mlp_bias="mlp_bias", runs=True
)


def bitnet_norms(config: Config) -> tuple[Weight, ...]:
    """BitNet normalises what enters the output and down projections."""
    return (
        parts.vector("self_attn.attn_sub_norm", config.size("hidden_size")),
        parts.vector("mlp.ffn_sub_norm", config.size("intermediate_size")),
    )


def smollm3_kinds(config: Config) -> tuple[str, ...]:
    """SmolLM3: layers without rotary positions slide, and only where `use_sliding_window` is true."""
    given = config.names("layer_types", config.layers, patterns.KINDS)
    if given is not None:
        return given
    step = config.size("no_rope_layer_interval", 4)
    rotary = config.wholes("no_rope_layers", config.layers)
    if rotary is None:
        rotary = tuple(int((i + 1) % step != 0) for i in range(config.layers))
    slides = config.flag("use_sliding_window") and patterns.window(config) is not None
    return tuple(patterns.SLIDING if slides and not turns else patterns.FULL for turns in rotary)


def exaone4_kinds(config: Config) -> tuple[str, ...]:
    """EXAONE 4: `sliding_window_pattern` is a period, or a string such as LLLG; no window, all full."""
    given = config.names("layer_types", config.layers, patterns.KINDS)
    if given is not None:
        return given
    pattern = config.raw("sliding_window_pattern", 4)
    if patterns.window(config) is None:
        return (patterns.FULL,) * config.layers
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        last = config.layers - 1
        return tuple(
            patterns.SLIDING if pattern[i % len(pattern)] == "L" and i != last else patterns.FULL
            for i in range(config.layers)
        )
    return patterns.every(4)(config)


FAMILIES: Final = (
    Family(("llama",), ("Llama", "LLaMA"), build(LLAMA)),
    Family(
        ("smollm3",),
        ("SmolLM3",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                mlp_bias="mlp_bias",
                kinds=smollm3_kinds,
            )
        ),
    ),
    Family(
        ("granite",),
        ("Granite",),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, mlp_bias="mlp_bias")),
    ),
    Family(
        ("arcee",),
        ("Arcee",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, mlp_bias="mlp_bias", gated=False
            )
        ),
    ),
    Family(
        ("seed_oss",),
        ("SeedOss",),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias="attention_out_bias", mlp_bias="mlp_bias")),
    ),
    Family(
        ("ernie4_5",),
        ("Ernie4_5", "Ernie4_5_"),
        build(Style(qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias")),
    ),
    Family(
        ("hunyuan_v1_dense",),
        ("HunYuanDenseV1",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="head",
                names=LAYERNORM_NAMES,
            )
        ),
    ),
    Family(
        ("bitnet",),
        ("BitNet", "Bitnet"),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, extra=bitnet_norms)),
    ),
    Family(
        ("phi3",),
        ("Phi3",),
        build(Style(names=FUSED, mlp_names=FUSED_MLP, kinds=patterns.all_windowed, runs=True)),
    ),
    Family(("glm",), ("Glm",), build(Style(qkv_bias=ALL_ATTENTION, mlp_names=FUSED_MLP))),
    Family(
        ("glm4",),
        ("Glm4",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                mlp_names=FUSED_MLP,
                norms=fixed(
                    "input_layernorm",
                    "post_attention_layernorm",
                    "post_self_attn_layernorm",
                    "post_mlp_layernorm",
                ),
            )
        ),
    ),
    Family(
        ("olmo",),
        ("Olmo",),
        build(Style(qkv_bias=ALL_ATTENTION, output_bias=ALL_ATTENTION, norm="none")),
    ),
    Family(
        ("olmo2",),
        ("Olmo2",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="projection",
                norms=POST_NORMS,
            )
        ),
    ),
    Family(
        ("olmo3",),
        ("Olmo3",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="projection",
                norms=POST_NORMS,
                kinds=patterns.listed(patterns.every(4, field="")),
            )
        ),
    ),
    Family(
        ("exaone4",),
        ("Exaone4",),
        build(Style(qk_norm="head", norms=POST_NORMS, kinds=exaone4_kinds)),
    ),
    Family(
        ("cohere",),
        ("Cohere",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                qk_norm="projection",
                qk_norm_switch="use_qk_norm",
                norm="layer_no_bias",
                norms=fixed("input_layernorm"),
            )
        ),
    ),
    Family(
        ("cohere2",),
        ("Cohere2",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                norm="layer_no_bias",
                norms=fixed("input_layernorm"),
                kinds=patterns.listed(patterns.every(4)),
            )
        ),
    ),
    Family(
        ("gemma",),
        ("Gemma",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                runs=True,
                arithmetic=gemma,
            )
        ),
    ),
    Family(
        ("gemma2",),
        ("Gemma2",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                norms=SANDWICH,
                kinds=patterns.listed(patterns.every(2, field="")),
            )
        ),
        core_defaults=True,
    ),
    Family(
        ("gemma3_text",),
        ("Gemma3",),
        build(
            Style(
                qkv_bias=ALL_ATTENTION,
                output_bias=ALL_ATTENTION,
                norms=SANDWICH,
                qk_norm="head",
                kinds=patterns.listed(patterns.every(6)),
                runs=True,
                arithmetic=gemma,
            )
        ),
        core_defaults=True,
    ),
)
