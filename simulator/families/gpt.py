"""The GPT generation: LayerNorm, two-matrix MLPs, learned positions or ALiBi, fused projections."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import Family, kv_heads
from roofcast.simulator.families.style import Style, build, fixed, plain_head_dim


def four_times(config: Config) -> int:
    """The file's MLP width; null and absent mean 4 x hidden."""
    return config.optional_size("intermediate_size") or 4 * config.size("hidden_size")


def always_four_times(config: Config) -> int:
    """4 x hidden, whatever else the file says."""
    return 4 * config.size("hidden_size")


def one_per_head(config: Config, heads: int) -> int:
    """No grouping: every query head has its own keys and values."""
    return heads


def bigcode_kv_heads(config: Config, heads: int) -> int:
    """One KV head for all, unless `multi_query` is false."""
    return 1 if config.flag("multi_query", True) else heads


def mpt_kv_heads(config: Config, heads: int) -> int:
    """MPT: one for every head; its other attention types have no implementation to follow."""
    kind = config.section("attn_config").text("attn_type", "multihead_attention")
    if kind != "multihead_attention":
        raise config.error("attn_config.attn_type", f"must be multihead_attention, not {kind!r}")
    return heads


def falcon_kv_heads(config: Config, heads: int) -> int:
    """Falcon-40B's own count; one in Falcon-7B (`multi_query`); else one for every head."""
    if config.flag("new_decoder_architecture"):
        return kv_heads(config, heads)
    config.ignore("num_kv_heads", "n_head_kv")
    return 1 if config.flag("multi_query", True) else heads


def falcon_norms(config: Config) -> tuple[str, ...]:
    """Falcon-7B shares one norm between attention and MLP; Falcon-40B has two, side by side."""
    if not config.flag("parallel_attn", True):
        return ("input_layernorm", "post_attention_layernorm")
    default = 2 if config.flag("new_decoder_architecture") else 1
    two = config.size("num_ln_in_parallel_attn", default) == 2
    return ("ln_attn", "ln_mlp") if two else ("input_layernorm",)


def stablelm_norms(config: Config) -> tuple[str, ...]:
    """One norm where attention and MLP run side by side."""
    both = ("input_layernorm", "post_attention_layernorm")
    return both[:1] if config.flag("use_parallel_residual") else both


def positions(path: str) -> parts.Tables:
    """A learned position table of `max_position_embeddings` rows."""

    def made(config: Config) -> tuple[Weight, ...]:
        rows = config.size("max_position_embeddings")
        return (parts.embedding(rows, config.size("hidden_size"), path),)

    return made


def embedding_norm(path: str) -> parts.Tables:
    """BLOOM normalises the embeddings."""
    return lambda config: parts.norm(path, config.size("hidden_size"), "layer")


def fused(path: str, output: str, prefix: str) -> parts.Names:
    """Names of an attention whose query, key and value share one matrix."""
    qkv = f"{prefix}.{path}"
    return parts.Names(q=qkv, k=qkv, v=qkv, o=f"{prefix}.{output}")


def two(first: str, second: str) -> tuple[str, str, str]:
    """Names of an MLP without a gate."""
    return (first, first, second)


GPT2: Final = Style(
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    norm="layer",
    norms=fixed("ln_1", "ln_2"),
    final_norm="transformer.ln_f",
    table="transformer.wte",
    tables=positions("transformer.wpe"),
    names=fused("c_attn", "c_proj", "attn"),
    mlp_names=two("c_fc", "c_proj"),
    mlp_width=four_times,
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
    runs=True,
    rope=False,
)
GPT_BIGCODE: Final = Style(
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    norm="layer",
    norms=fixed("ln_1", "ln_2"),
    final_norm="transformer.ln_f",
    table="transformer.wte",
    tables=positions("transformer.wpe"),
    names=fused("c_attn", "c_proj", "attn"),
    mlp_names=two("c_fc", "c_proj"),
    mlp_width=four_times,
    head_dim=plain_head_dim,
    kv_heads=bigcode_kv_heads,
)
GPTJ: Final = Style(
    mlp_bias=True,
    head_bias=True,
    gated=False,
    norm="layer",
    norms=fixed("ln_1"),
    final_norm="transformer.ln_f",
    table="transformer.wte",
    names=parts.Names("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj"),
    mlp_names=two("fc_in", "fc_out"),
    mlp_width=four_times,
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
)
GPT_NEOX: Final = Style(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    mlp_bias=True,
    gated=False,
    norm="layer",
    final_norm="gpt_neox.final_layer_norm",
    table="gpt_neox.embed_in",
    output="embed_out",
    names=fused("query_key_value", "dense", "attention"),
    mlp_names=two("dense_h_to_4h", "dense_4h_to_h"),
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
)
BLOOM: Final = Style(
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    gated=False,
    norm="layer",
    final_norm="transformer.ln_f",
    table="transformer.word_embeddings",
    tables=embedding_norm("transformer.word_embeddings_layernorm"),
    names=fused("query_key_value", "dense", "self_attention"),
    mlp_names=two("dense_h_to_4h", "dense_4h_to_h"),
    mlp_width=always_four_times,
    head_dim=plain_head_dim,
    kv_heads=one_per_head,
)
FALCON: Final = Style(
    qkv_bias="bias",
    output_bias="bias",
    mlp_bias="bias",
    gated=False,
    norm="layer",
    norms=falcon_norms,
    final_norm="transformer.ln_f",
    table="transformer.word_embeddings",
    names=fused("query_key_value", "dense", "self_attention"),
    mlp_names=two("dense_h_to_4h", "dense_4h_to_h"),
    mlp_width=four_times,
    head_dim=plain_head_dim,
    kv_heads=falcon_kv_heads,
)
MPT: Final = Style(
    gated=False,
    norm="layer_no_bias",
    norms=fixed("norm_1", "norm_2"),
    final_norm="transformer.norm_f",
    table="transformer.wte",
    names=fused("Wqkv", "out_proj", "attn"),
    mlp_prefix="ffn",
    mlp_names=two("up_proj", "down_proj"),
    mlp_width=always_four_times,
    head_dim=plain_head_dim,
    kv_heads=mpt_kv_heads,
)
STARCODER2: Final = Style(
    qkv_bias="use_bias",
    output_bias="use_bias",
    mlp_bias="use_bias",
    gated=False,
    norm="layer",
    mlp_names=two("c_fc", "c_proj"),
    kinds=patterns.all_windowed,
    runs=True,
)
STABLELM: Final = Style(
    qkv_bias="use_qkv_bias",
    qk_norm="projection",
    qk_norm_switch="qk_layernorm",
    norm="layer",
    norms=stablelm_norms,
    head_dim=plain_head_dim,
    names=parts.Names(q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm"),
)
PHI: Final = Style(
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    head_bias=True,
    gated=False,
    qk_norm="head_bias",
    qk_norm_switch="qk_layernorm",
    norm="layer",
    norms=fixed("input_layernorm"),
    final_norm="model.final_layernorm",
    names=parts.Names(
        o="self_attn.dense", q_norm="self_attn.q_layernorm", k_norm="self_attn.k_layernorm"
    ),
    mlp_names=two("fc1", "fc2"),
    mlp_width=four_times,
)
NEMOTRON: Final = Style(
    qkv_bias="attention_bias",
    output_bias="attention_bias",
    mlp_bias="mlp_bias",
    gated=False,
    norm="layer",
    mlp_names=two("up_proj", "down_proj"),
)

FAMILIES: Final = (
    Family(("gpt2",), ("GPT2",), build(GPT2), layers_at="transformer.h"),
    Family(("gpt_bigcode",), ("GPTBigCode",), build(GPT_BIGCODE), layers_at="transformer.h"),
    Family(("gptj",), ("GPTJ",), build(GPTJ), layers_at="transformer.h"),
    Family(("gpt_neox",), ("GPTNeoX",), build(GPT_NEOX), layers_at="gpt_neox.layers"),
    Family(("bloom",), ("Bloom",), build(BLOOM), layers_at="transformer.h"),
    Family(
        ("falcon", "RefinedWeb", "RefinedWebModel"),
        ("Falcon", "RW"),
        build(FALCON),
        defaults_of="falcon",
        layers_at="transformer.h",
    ),
    Family(("mpt",), ("Mpt", "MPT"), build(MPT), layers_at="transformer.blocks"),
    Family(("starcoder2",), ("Starcoder2",), build(STARCODER2)),
    Family(
        ("stablelm", "stablelm_epoch"), ("StableLm", "StableLMEpoch"), build(STABLELM), "stablelm"
    ),
    Family(("phi", "phi-msft"), ("Phi",), build(PHI), defaults_of="phi"),
    Family(("nemotron",), ("Nemotron",), build(NEMOTRON)),
)
