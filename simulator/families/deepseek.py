"""Decoders with multi-head latent attention: DeepSeek V2, V3, V3.2, Kimi K2, GLM-4.7 and GLM-5."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from roofcast.simulator.architecture import Architecture, Experts, Indexer, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.mtp import Mtp, mtp_layers
from roofcast.simulator.families.style import MoeStyle, Style, mlp_of, moe_of, shared_experts

OWN, SHARED, NONE = "full", "shared", "none"


PLAIN: Final = Style()
SHARED_MOE: Final = MoeStyle(shared_width=shared_experts)


@dataclass(frozen=True, slots=True)
class MlaStyle:
    """How one family of latent-attention decoders differs: sparse attention or not, MTP or not."""

    sparse: bool = False
    mtp: Mtp | None = None
    dense: patterns.DenseRule = patterns.first_dense
    mlp: Style = PLAIN
    moe: MoeStyle = SHARED_MOE


def latent_of(config: Config) -> parts.Latent:
    """The latent attention of a file. `head_dim` and the KV heads of these files are noise."""
    config.ignore("head_dim", "qk_head_dim", "num_key_value_heads")
    if config.count("moe_layer_freq", 1) != 1:
        raise config.error("moe_layer_freq", "must be 1: the reference knows no other")
    heads = config.size("num_attention_heads")
    return parts.Latent(
        hidden=config.size("hidden_size"),
        heads=heads,
        query_rank=config.optional_size("q_lora_rank"),
        latent=config.size("kv_lora_rank"),
        rope=config.size("qk_rope_head_dim"),
        nope=config.size("qk_nope_head_dim"),
        value=config.optional_size("v_head_dim") or config.size("hidden_size") // heads,
        bias=config.flag("attention_bias"),
    )


def indexer_weights(config: Config, latent: parts.Latent) -> tuple[Weight, ...]:
    """DeepSeek Sparse Attention's indexer: queries from the compressed query, one key a token."""
    heads, dim = config.size("index_n_heads"), config.size("index_head_dim")
    rank, hidden, at = latent.query_rank or latent.hidden, latent.hidden, "self_attn.indexer"
    return (
        Weight(f"{at}.wq_b", "indexer_q_proj", "indexer", heads * dim, rank),
        Weight(f"{at}.wk", "indexer_k_proj", "indexer", dim, hidden),
        Weight(f"{at}.weights_proj", "indexer_k_proj", "indexer", heads, hidden),
        Weight(f"{at}.k_norm", "norm", "indexer", dim, bias=True, use="vector"),
    )


def indexer_types(config: Config) -> tuple[str, ...]:
    """Which layers own an indexer and which reuse an earlier layer's choice (GLM-5.2)."""
    given = config.names("indexer_types", config.layers, (OWN, SHARED))
    config.ignore("index_topk_freq", "index_skip_topk_offset", "index_topk_pattern")
    if given is not None:
        return given
    pattern = config.raw("index_topk_pattern", None)
    if isinstance(pattern, str):
        if len(pattern) != config.layers or set(pattern) - {"F", "S"}:
            raise config.error(
                "index_topk_pattern", f"must be {config.layers} letters F or S, not {pattern!r}"
            )
        return tuple(OWN if letter == "F" else SHARED for letter in pattern)
    step = config.size("index_topk_freq", 1)
    skip = config.count("index_skip_topk_offset", 2)
    return tuple(OWN if max(i - skip + 1, 0) % step == 0 else SHARED for i in range(config.layers))


def from_config(style: MlaStyle, config: Config) -> Architecture:
    """The architecture of a latent-attention file."""
    dense = style.dense(config)
    indexers = indexer_types(config) if style.sparse else (NONE,) * config.layers
    recipes = tuple(zip(dense, indexers, strict=True))
    built = {recipe: _layer(style, config, *recipe) for recipe in dict.fromkeys(recipes)}
    layers = tuple(built[recipe] for recipe in recipes)
    tables, output = embeddings_and_head(config)
    mtp: tuple[tuple[Weight, ...], tuple[Experts, ...]] = ((), ())
    if style.mtp and config.count(style.mtp.field):
        mtp = mtp_layers(
            config, style.mtp, _layer(style, config, False, OWN if style.sparse else NONE)
        )
    return architecture(config, Body(layers, tables, output, *mtp))


def _layer(style: MlaStyle, config: Config, dense: bool, indexer: str) -> Layer:
    latent = latent_of(config)
    weights = latent.weights()
    scorer: Indexer | None = None
    if indexer == OWN:
        weights += indexer_weights(config, latent)
        dim = config.size("index_head_dim")
        scorer = Indexer(config.size("index_n_heads"), dim, dim)
    selected = None if indexer == NONE else config.size("index_topk")
    core = latent.core(selected=selected, indexer=scorer)
    around = parts.norms(("input_layernorm", "post_attention_layernorm"), latent.hidden)
    kind = "latent_attention" if indexer == NONE else "sparse_latent_attention"
    if dense:
        mlp = mlp_of(style.mlp, config).weights()
        return layer(f"{kind}+dense", weights, mlp, around, cores=(core,))
    moe = moe_of(style.moe, config, config.size("num_experts_per_tok"))
    return layer(f"{kind}+moe", weights, moe.weights(), around, cores=(core,), experts=moe.routed())


def glm_lite_dense(config: Config) -> tuple[bool, ...]:
    """GLM-4.7-Flash: the first layer is dense unless the file says otherwise."""
    if config.has("mlp_layer_types") or config.has("first_k_dense_replace"):
        return patterns.first_dense(config)
    return tuple(i == 0 for i in range(config.layers))


V2: Final = MlaStyle(
    mlp=Style(mlp_bias="mlp_bias"),
    moe=MoeStyle(shared_width=shared_experts, shared_bias="mlp_bias"),
)
_KIMI: Final = ("kimi_k2", "kimi_k25", "kimi_k2_5")

FAMILIES: Final = (
    Family(("deepseek_v2",), ("DeepseekV2",), partial(from_config, V2)),
    Family(
        ("deepseek_v3", *_KIMI),
        ("DeepseekV3", "KimiK2", "KimiK25"),
        partial(from_config, MlaStyle(mtp=Mtp())),
        defaults_of="deepseek_v3",
    ),
    Family(
        ("deepseek_v32",),
        ("DeepseekV32",),
        partial(from_config, MlaStyle(sparse=True, mtp=Mtp())),
    ),
    Family(
        ("glm4_moe_lite",),
        ("Glm4MoeLite",),
        partial(from_config, MlaStyle(mtp=Mtp(), dense=glm_lite_dense)),
    ),
    Family(
        ("glm_moe_dsa",),
        ("GlmMoeDsa",),
        partial(from_config, MlaStyle(sparse=True, mtp=Mtp())),
    ),
    Family(("mistral4",), ("Mistral4",), partial(from_config, MlaStyle())),
    Family(("sarvam_mla",), ("SarvamMLA",), partial(from_config, MlaStyle())),
    Family(
        ("minicpm3",),
        ("MiniCPM3",),
        partial(from_config, MlaStyle(dense=patterns.all_dense, mlp=Style(mlp_bias="mlp_bias"))),
    ),
    Family(("youtu",), ("Youtu",), partial(from_config, MlaStyle(dense=patterns.all_dense))),
)
