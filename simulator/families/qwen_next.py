"""Qwen3-Next and Qwen3.5: Gated DeltaNet layers with a gated full-attention layer every fourth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roofcast.simulator.architecture import Architecture, Experts, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import (
    LINEAR,
    every_full,
    gqa,
    mixers,
    stack,
    state_bytes,
    top_k,
)
from roofcast.simulator.families.mixers import DeltaNet
from roofcast.simulator.families.patterns import FULL
from roofcast.simulator.families.qwen import sparse_steps
from roofcast.simulator.families.style import LLAMA_NORMS


@dataclass(frozen=True, slots=True)
class Variant:
    """What differs between the generations: dense layers, and how the DeltaNet's inputs are cut."""

    dense: Callable[[Config], tuple[bool, ...]]
    fused_inputs: bool = False


def build(variant: Variant) -> Callable[[Config], Architecture]:
    """The builder of one generation."""

    def from_config(config: Config) -> Architecture:
        kinds = mixers(
            config,
            (LINEAR, FULL),
            lambda: every_full(config, config.size("full_attention_interval", 4)),
        )
        config.ignore("full_attention_interval", "use_sliding_window", "intermediate_size")
        layers = stack(
            zip(kinds, variant.dense(config), strict=True),
            lambda key: _layer(config, variant, *key),
        )
        tables, output = embeddings_and_head(config)
        mtp, mtp_experts = _mtp(config, variant)
        return architecture(config, Body(layers, tables, output, mtp, mtp_experts))

    return from_config


def delta_net(config: Config, *, fused: bool) -> DeltaNet:
    """The Gated DeltaNet of this file; `fused` where queries, keys, values and gate are one matrix."""
    key_heads = config.size("linear_num_key_heads")
    value_heads = config.size("linear_num_value_heads")
    if value_heads % key_heads:
        raise config.error(
            "linear_num_value_heads",
            f"= {value_heads} must be a multiple of linear_num_key_heads = {key_heads}",
        )
    key_dim, value_dim = config.size("linear_key_head_dim"), config.size("linear_value_head_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    inputs: tuple[tuple[str, int], ...] = (
        ("in_proj_qkv", 2 * keys + values),
        ("in_proj_z", values),
        ("in_proj_b", value_heads),
        ("in_proj_a", value_heads),
    )
    if fused:
        inputs = (("in_proj_qkvz", 2 * keys + 2 * values), ("in_proj_ba", 2 * value_heads))
    return DeltaNet(
        hidden=config.size("hidden_size"),
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        kernel=config.size("linear_conv_kernel_dim"),
        projections=inputs,
        state_bytes=state_bytes(config, "mamba_ssm_dtype"),
    )


def _attention(config: Config) -> parts.Attention:
    if not config.flag("attn_output_gate", True):
        raise config.error(
            "attn_output_gate", "must be true: no model of this family lacks the gate"
        )
    return gqa(config, bias=config.flag("attention_bias"), qk_norm="head", query_copies=2)


def _layer(config: Config, variant: Variant, kind: str, dense: bool) -> Layer:
    name, block, experts = _feed_forward(config, dense)
    normed = parts.norms(LLAMA_NORMS, config.size("hidden_size"))
    if kind == LINEAR:
        mixer = delta_net(config, fused=variant.fused_inputs)
        return layer(
            f"{kind}+{name}", mixer.weights(), block, normed, cores=(mixer.core(),), experts=experts
        )
    attention = _attention(config)
    return layer(
        f"{kind}+{name}",
        attention.weights(),
        block,
        normed,
        cores=(attention.core(),),
        experts=experts,
    )


def _feed_forward(config: Config, dense: bool) -> tuple[str, tuple[Weight, ...], Experts | None]:
    hidden = config.size("hidden_size")
    if dense:
        return "dense", parts.Mlp(hidden, config.size("intermediate_size")).weights(), None
    count = config.size("num_experts")
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count),
        config.size("moe_intermediate_size"),
        shared_width=config.size("shared_expert_intermediate_size"),
        shared_gate=True,
        shared="mlp.shared_expert",
    )
    return "moe", moe.weights(), moe.routed()


def _mtp(config: Config, variant: Variant) -> tuple[tuple[Weight, ...], tuple[Experts, ...]]:
    """Draft layers: the new token's embedding and the hidden state merged, then full attention."""
    count = config.count("num_nextn_predict_layers")
    config.ignore("mtp_use_dedicated_embeddings")
    if not count:
        return (), ()
    hidden = config.size("hidden_size")
    made = _layer(config, variant, FULL, variant.dense(config)[-1])
    merge = (
        Weight("mtp.fc", "mtp_merge", "other", hidden, 2 * hidden),
        *parts.norms(("mtp.pre_fc_norm_hidden", "mtp.pre_fc_norm_embedding", "mtp.norm"), hidden),
    )
    experts = (made.experts,) * count if made.experts else ()
    return merge + made.weights * count, experts


def _next_dense(config: Config) -> tuple[bool, ...]:
    if not config.count("num_experts"):
        return (True,) * config.layers
    return sparse_steps(config)


def _all_dense(config: Config) -> tuple[bool, ...]:
    return (True,) * config.layers


def _all_sparse(config: Config) -> tuple[bool, ...]:
    config.ignore("mlp_only_layers", "decoder_sparse_step")
    return (False,) * config.layers


FAMILIES: Final = (
    Family(("qwen3_next",), ("Qwen3Next",), build(Variant(_next_dense, fused_inputs=True))),
    Family(
        ("qwen3_5_text", "qwen3_5"),
        ("Qwen3_5",),
        build(Variant(_all_dense)),
        defaults_of="qwen3_5_text",
        layers_at="model.language_model.layers",
    ),
    Family(
        ("qwen3_5_moe_text", "qwen3_5_moe"),
        ("Qwen3_5Moe",),
        build(Variant(_all_sparse)),
        defaults_of="qwen3_5_moe_text",
        layers_at="model.language_model.layers",
    ),
)
