"""Kimi Linear and Bailing Hybrid (Ling, Ring): Kimi delta attention, some latent attention."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Core, Experts, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import LINEAR, every_full, mixers, stack, top_k
from roofcast.simulator.families.mixers import KimiDelta
from roofcast.simulator.families.mtp import Mtp, mtp_layers
from roofcast.simulator.families.patterns import FULL
from roofcast.simulator.families.style import LLAMA_NORMS

DENSE: Final = "dense"
SPARSE: Final = "sparse"
# Kimi K3 calls its text model kimi_linear, but builds these besides; no public implementation in
# transformers says how large they are.
K3_ONLY: Final = (
    "routed_expert_hidden_size",
    "latent_moe_use_norm",
    "mla_use_output_gate",
    "attn_res_block_size",
)


def build_kimi(config: Config) -> Architecture:
    """The model of a kimi_linear file; Kimi K3 is refused by name."""
    for name in K3_ONLY:
        if config.has(name) and config.raw(name) not in (None, False, 0):
            raise config.error(
                name, "marks Kimi K3, which is not supported: only Kimi Linear's layers are known"
            )
    config.ignore(*K3_ONLY, "head_dim", "moe_layer_freq", "mla_use_nope", "use_grouped_topk")
    if config.count("num_nextn_predict_layers"):
        raise config.error("num_nextn_predict_layers", "must be 0: no such draft layer is known")
    return _stack(config, _kinds(config), _mlp_kinds(config, 1))


def build_bailing(config: Config) -> Architecture:
    """The model of a bailing_hybrid file: full-rank gates, and one for each latent head."""
    config.ignore("head_dim", "mtp_loss_scaling_factor", "kda_safe_gate", "kda_lower_bound")

    def grouped() -> tuple[str, ...]:
        return every_full(config, config.size("layer_group_size"))

    kinds = mixers(config, (LINEAR, FULL), grouped)
    config.ignore("layer_group_size")
    return _stack(config, kinds, _mlp_kinds(config, 2), bailing=True)


def _stack(
    config: Config, kinds: tuple[str, ...], mlp_kinds: tuple[str, ...], *, bailing: bool = False
) -> Architecture:
    config.ignore("moe_renormalize", "num_expert_group")

    def make(key: tuple[str, str]) -> Layer:
        kind, mlp_kind = key
        mixer = _delta(config, bailing=bailing) if kind == LINEAR else _latent(config)
        gate = _head_gate(config) if bailing and kind == FULL else ()
        return _layer(config, kind, (*mixer.weights(), *gate), mixer.core(), mlp_kind)

    layers = stack(zip(kinds, mlp_kinds, strict=True), make)
    tables, output = embeddings_and_head(config, ties=False)
    mtp: tuple[tuple[Weight, ...], tuple[Experts, ...]] = ((), ())
    if bailing:
        mtp = mtp_layers(config, Mtp(), make((FULL, SPARSE)))
    return architecture(config, Body(layers, tables, output, *mtp))


def _kinds(config: Config) -> tuple[str, ...]:
    """Mixer by layer: `layer_types`, else the 1-indexed lists, else latent at 4, 8, ..."""

    def from_lists() -> tuple[str, ...]:
        lists = config.section("linear_attn_config")
        full, linear = lists.wholes("full_attn_layers"), lists.wholes("kda_layers")
        count = config.layers
        if full is None or linear is None:
            return tuple(FULL if i and i % 4 == 0 else LINEAR for i in range(count))
        if sorted((*full, *linear)) != list(range(1, count + 1)):
            raise config.error(
                "linear_attn_config",
                f"must name each layer from 1 to {count} once in kda_layers and full_attn_layers",
            )
        return tuple(FULL if i + 1 in full else LINEAR for i in range(count))

    return mixers(config, (LINEAR, FULL), from_lists)


def _mlp_kinds(config: Config, dense_first: int) -> tuple[str, ...]:
    given = config.names("mlp_layer_types", config.layers, (DENSE, SPARSE))
    if given is not None:
        return given
    first = config.count("first_k_dense_replace", dense_first)
    return tuple(DENSE if i < first else SPARSE for i in range(config.layers))


def _layer(
    config: Config, kind: str, mixer: tuple[Weight, ...], core: Core, mlp_kind: str
) -> Layer:
    hidden = config.size("hidden_size")
    normed = parts.norms(LLAMA_NORMS, hidden)
    if mlp_kind == DENSE:
        block = parts.Mlp(hidden, config.size("intermediate_size"))
        return layer(f"{kind}+dense", mixer, block.weights(), normed, cores=(core,))
    count = config.size("num_experts")
    width = config.size("moe_intermediate_size")
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count),
        width,
        shared_width=config.count("n_shared_experts", 1) * width,
        router="block_sparse_moe.gate",
        experts="block_sparse_moe.experts",
        shared="block_sparse_moe.shared_experts",
    )
    routed = moe.routed()
    return layer(f"{kind}+moe", mixer, moe.weights(), normed, cores=(core,), experts=routed)


def _delta(config: Config, *, bailing: bool) -> KimiDelta:
    hidden = config.size("hidden_size")
    if bailing:
        heads, dim = config.size("num_attention_heads"), config.size("head_dim")
        return KimiDelta(hidden, heads, dim, config.size("short_conv_kernel_size"), True)
    lists = config.section("linear_attn_config")
    return KimiDelta(
        hidden=hidden,
        heads=lists.size("num_heads", config.size("linear_num_heads")),
        head_dim=lists.size("head_dim", config.size("linear_head_dim")),
        kernel=lists.size("short_conv_kernel_size", config.size("linear_conv_kernel_dim")),
    )


def _head_gate(config: Config) -> tuple[Weight, ...]:
    heads = config.size("num_attention_heads")
    hidden = config.size("hidden_size")
    return (Weight("self_attn.g_proj", "attention_gate", "attention", heads, hidden, pieces=heads),)


def _latent(config: Config) -> parts.Latent:
    config.ignore("num_key_value_heads")
    return parts.Latent(
        hidden=config.size("hidden_size"),
        heads=config.size("num_attention_heads"),
        query_rank=config.optional_size("q_lora_rank"),
        latent=config.size("kv_lora_rank"),
        rope=config.size("qk_rope_head_dim"),
        nope=config.size("qk_nope_head_dim"),
        value=config.size("v_head_dim"),
        bias=config.flag("attention_bias"),
    )


FAMILIES: Final = (
    Family(("kimi_linear",), ("KimiLinear",), build_kimi),
    Family(("bailing_hybrid",), ("BailingHybrid",), build_bailing),
)
