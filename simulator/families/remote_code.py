"""Decoders whose code came with their checkpoints and never entered transformers.

Rules are those of the checkpoints' own modelling files; totals are checked against published ones.
"""

from __future__ import annotations

from typing import Final

from roofcast.simulator.config import Config
from roofcast.simulator.families.family import Family, kv_heads
from roofcast.simulator.families.gpt import fused, one_per_head
from roofcast.simulator.families.llama import LLAMA
from roofcast.simulator.families.style import (
    MoeStyle,
    Style,
    build,
    fixed,
    plain_head_dim,
    shared_experts,
)

UNTIED: Final = {"tie_word_embeddings": False}


def half_width(config: Config) -> int:
    """Qwen 1 counts gate and up together."""
    width = config.size("intermediate_size")
    if width % 2:
        raise config.error("intermediate_size", f"= {width} must be even: it is gate and up")
    return width // 2


def chatglm_head_dim(config: Config, heads: int) -> int:
    """ChatGLM names its head size after channels."""
    return config.optional_size("kv_channels") or plain_head_dim(config, heads)


def chatglm_kv_heads(config: Config, heads: int) -> int:
    """ChatGLM's groups count only where `multi_query_attention` is true."""
    groups = config.size("multi_query_group_num", 1)
    if not config.flag("multi_query_attention"):
        return heads
    if heads % groups:
        raise config.error("multi_query_group_num", f"= {groups} must divide {heads} heads")
    return groups


def deepseek_dense(config: Config) -> tuple[bool, ...]:
    """The first layers, and those off `moe_layer_freq`."""
    first, step = config.count("first_k_dense_replace"), config.size("moe_layer_freq", 1)
    return tuple(i < first or i % step != 0 for i in range(config.layers))


INTERNLM2: Final = Style(
    qkv_bias="bias",
    output_bias="bias",
    norms=fixed("attention_norm", "ffn_norm"),
    table="model.tok_embeddings",
    output="output",
    names=fused("wqkv", "wo", "attention"),
    mlp_prefix="feed_forward",
    mlp_names=("w1", "w3", "w2"),
)
QWEN1: Final = Style(
    qkv_bias=True,
    norms=fixed("ln_1", "ln_2"),
    final_norm="transformer.ln_f",
    table="transformer.wte",
    names=fused("c_attn", "c_proj", "attn"),
    mlp_names=("w2", "w1", "c_proj"),
    mlp_width=half_width,
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
    understood=("kv_channels", "no_bias"),
)
BAICHUAN: Final = Style(names=fused("W_pack", "o_proj", "self_attn"), kv_heads=one_per_head)
CHATGLM: Final = Style(
    qkv_bias="add_qkv_bias",
    output_bias="add_bias_linear",
    mlp_bias="add_bias_linear",
    final_norm="transformer.encoder.final_layernorm",
    table="transformer.embedding.word_embeddings",
    output="transformer.output_layer",
    names=fused("query_key_value", "dense", "self_attention"),
    mlp_names=("dense_h_to_4h", "dense_h_to_4h", "dense_4h_to_h"),
    head_dim=chatglm_head_dim,
    kv_heads=chatglm_kv_heads,
    understood=("rmsnorm", "post_layer_norm", "original_rope", "rope_ratio"),
)
DEEPSEEK1: Final = Style(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    kv_heads=kv_heads,
    moe=MoeStyle(dense=deepseek_dense, shared_width=shared_experts),
)

FAMILIES: Final = (
    Family(("internlm2",), ("InternLM2",), build(INTERNLM2), defaults={**UNTIED, "bias": True}),
    Family(("qwen",), ("QWen",), build(QWEN1), defaults=UNTIED, layers_at="transformer.h"),
    Family(("baichuan",), ("Baichuan", "BaiChuan"), build(BAICHUAN), defaults=UNTIED),
    Family(
        ("chatglm",),
        ("ChatGLM",),
        build(CHATGLM),
        defaults=UNTIED,
        layers_at="transformer.encoder.layers",
        spellings={"vocab_size": ("padded_vocab_size",)},
    ),
    Family(("minicpm",), ("MiniCPM",), build(LLAMA), defaults={"tie_word_embeddings": True}),
    Family(
        ("deepseek",),
        ("Deepseek",),
        build(DEEPSEEK1),
        defaults={**UNTIED, "first_k_dense_replace": 0},
    ),
)
