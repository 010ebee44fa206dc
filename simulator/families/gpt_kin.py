"""More decoders of the GPT generation."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import Family
from roofcast.simulator.families.gpt import (
    GPT2,
    GPTJ,
    four_times,
    fused,
    one_per_head,
    positions,
    two,
)
from roofcast.simulator.families.opt import POSITION_OFFSET
from roofcast.simulator.families.style import Style, build, fixed, plain_head_dim


def neo_kinds(config: Config) -> tuple[str, ...]:
    """GPT-Neo: `attention_types` lists groups of global and local layers with their repeats."""
    groups = config.items("attention_types")
    if groups is None:
        groups = ((("global", "local"), config.layers // 2),)
    names: list[str] = []
    for group in groups:
        if not isinstance(group, list | tuple) or len(group) != 2 or not isinstance(group[1], int):
            raise config.error("attention_types", "must list [kinds, repeats] pairs")
        names += [str(kind) for kind in group[0]] * group[1]
    if len(names) != config.layers or set(names) - {"global", "local"}:
        raise config.error(
            "attention_types", f"must give global or local for each of {config.layers} layers"
        )
    return tuple(patterns.FULL if name == "global" else patterns.SLIDING for name in names)


def no_window(config: Config) -> None:
    """GPT-Neo masks its local layers; the reference keeps and multiplies their whole cache."""
    config.ignore("window_size")


def offset_positions(path: str) -> parts.Tables:
    """A learned position table with two rows more than positions (BioGPT)."""

    def made(config: Config) -> tuple[Weight, ...]:
        rows = config.size("max_position_embeddings") + POSITION_OFFSET
        return (parts.embedding(rows, config.size("hidden_size"), path),)

    return made


NEO: Final = Style(
    output_bias=True,
    mlp_bias=True,
    gated=False,
    norm="layer",
    norms=fixed("ln_1", "ln_2"),
    final_norm="transformer.ln_f",
    table="transformer.wte",
    tables=positions("transformer.wpe"),
    names=parts.Names(
        "attn.attention.q_proj",
        "attn.attention.k_proj",
        "attn.attention.v_proj",
        "attn.attention.out_proj",
    ),
    mlp_names=two("c_fc", "c_proj"),
    mlp_width=four_times,
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
    kinds=neo_kinds,
    window=no_window,
)
PERSIMMON: Final = Style(
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    qk_norm="head_bias",
    qk_norm_switch="qk_layernorm",
    norm="layer",
    final_norm="model.final_layernorm",
    names=replace(
        fused("query_key_value", "dense", "self_attn"),
        q_norm="self_attn.q_layernorm",
        k_norm="self_attn.k_layernorm",
    ),
    mlp_names=two("dense_h_to_4h", "dense_4h_to_h"),
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
)
BART_LIKE: Final = Style(
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    norm="layer",
    norms=fixed("self_attn_layer_norm", "final_layer_norm"),
    final_norm="model.layer_norm",
    names=parts.Names(o="self_attn.out_proj"),
    mlp_prefix="",
    mlp_names=two("fc1", "fc2"),
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
)
BIOGPT: Final = replace(
    BART_LIKE,
    table="biogpt.embed_tokens",
    final_norm="biogpt.layer_norm",
    tables=offset_positions("biogpt.embed_positions"),
    output="output_projection",
)

FAMILIES: Final = (
    Family(("gpt-sw3",), ("GPTSw3",), build(GPT2), "gpt2", layers_at="transformer.h"),
    Family(
        ("gpt_neo",),
        ("GPTNeo",),
        build(NEO),
        layers_at="transformer.h",
        spellings={"num_attention_heads": ("num_heads",)},
    ),
    Family(
        ("codegen",),
        ("CodeGen",),
        build(replace(GPTJ, names=fused("qkv_proj", "out_proj", "attn"))),
        layers_at="transformer.h",
    ),
    Family(("persimmon",), ("Persimmon",), build(PERSIMMON)),
    Family(
        ("xglm",),
        ("XGLM",),
        build(BART_LIKE),
        spellings={"num_attention_heads": ("attention_heads",)},
    ),
    Family(("biogpt",), ("BioGpt",), build(BIOGPT), layers_at="biogpt.layers"),
)
