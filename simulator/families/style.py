"""Decoders that are Llama with differences: the differences as data, one builder for all.

A `Style` says how a family deviates. Where a difference is a switch in config.json, the style holds
the switch's name; where it is a fact of the family, it holds the fact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from roofcast.simulator.architecture import Architecture, Core, Experts, Layer, Numerics, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    architecture,
    embeddings_and_head,
    head_dim,
    kv_heads,
    layer,
)

Switch = str | bool
LLAMA_NORMS: Final = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True, slots=True)
class MoeStyle:
    """How a family's mixture-of-experts blocks are sized and which layers have one.

    `width` names the field with the experts' width; `dense` gives, for each layer, whether it has a
    plain MLP instead. `shared_width` gives the width of all shared experts together.
    """

    width: str = "moe_intermediate_size"
    dense: Callable[[Config], tuple[bool, ...]] = lambda config: (False,) * config.layers
    dense_width: str = "intermediate_size"
    shared_width: Callable[[Config], int] = lambda config: 0
    shared_gate: bool = False
    gated: bool = True
    expert_bias: bool = False
    router_bias: Switch = False
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    shared: str = "mlp.shared_experts"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Style:
    """How one family's decoder differs from Llama's."""

    qkv_bias: Switch = False
    output_bias: Switch = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    gated: bool = True
    qk_norm: parts.QkNorm = "none"
    qk_norm_switch: Switch = True
    sinks: str = ""
    norm: parts.NormKind = "rms"
    norms: tuple[str, ...] = LLAMA_NORMS
    final_norm: str = "model.norm"
    table: str = "model.embed_tokens"
    names: parts.Names = parts.Names()
    mlp_prefix: str = "mlp"
    mlp_names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    mlp_width: Callable[[Config], int] = lambda config: config.size("intermediate_size")
    head_dim: Callable[[Config, int], int] = head_dim
    kinds: patterns.Rule = patterns.all_full
    window: Callable[[Config], int | None] = patterns.window
    moe: MoeStyle | None = None
    numerics: bool = False
    extra: Callable[[Config], tuple[Weight, ...]] = field(default=lambda config: ())


def switch(config: Config, value: Switch) -> bool:
    """A switch of the file where a name is given, else the fact itself."""
    return config.flag(value) if isinstance(value, str) else value


def build(style: Style) -> Callable[[Config], Architecture]:
    """The builder of a family with this style."""

    def from_config(config: Config) -> Architecture:
        attention = attention_of(config, style)
        window = style.window(config)
        kinds_ = style.kinds(config)
        blocks = [_feed_forward(config, style, dense) for dense in (True, False)]
        dense = _dense_layers(config, style)
        built: dict[tuple[str, bool], Layer] = {}
        for key in dict.fromkeys(zip(kinds_, dense, strict=True)):
            kind, is_dense = key
            core = attention.core(
                window=None if kind == patterns.FULL else window, chunked=kind == patterns.CHUNKED
            )
            built[key] = _layer(
                config, style, kind, attention, core, blocks[0 if is_dense else 1]()
            )
        tables, output = embeddings_and_head(
            config,
            table=style.table,
            final_norm=style.final_norm,
            norm=style.norm,
            head_bias=switch(config, style.head_bias),
        )
        layers = tuple(built[key] for key in zip(kinds_, dense, strict=True))
        numerics = numerics_of(config, style) if style.numerics else None
        return architecture(
            config, Body(layers, tables + style.extra(config), output, numerics=numerics)
        )

    return from_config


def attention_of(config: Config, style: Style) -> parts.Attention:
    """The attention every layer of this file has."""
    heads = config.size("num_attention_heads")
    width = style.head_dim(config, heads)
    return parts.Attention(
        hidden=config.size("hidden_size"),
        query_heads=heads,
        kv_heads=kv_heads(config, heads),
        key_dim=width,
        value_dim=width,
        qkv_bias=switch(config, style.qkv_bias),
        output_bias=switch(config, style.output_bias),
        qk_norm=style.qk_norm if switch(config, style.qk_norm_switch) else "none",
        sinks=style.sinks,
        names=style.names,
    )


def mlp_of(config: Config, style: Style, width: int) -> parts.Mlp:
    """A plain MLP of this style."""
    return parts.Mlp(
        config.size("hidden_size"),
        width,
        gated=style.gated,
        bias=switch(config, style.mlp_bias),
        prefix=style.mlp_prefix,
        names=style.mlp_names,
    )


def moe_of(config: Config, style: MoeStyle) -> parts.Moe:
    """The mixture-of-experts block of this file."""
    count = config.size("num_experts")
    top_k = config.size("num_experts_per_tok")
    if top_k > count:
        raise config.error(
            "num_experts_per_tok", f"= {top_k} is more than the model's {count} experts"
        )
    return parts.Moe(
        config.size("hidden_size"),
        count,
        top_k,
        config.size(style.width),
        gated=style.gated,
        bias=style.expert_bias,
        router_bias=switch(config, style.router_bias),
        shared_width=style.shared_width(config),
        shared_gate=style.shared_gate,
        router=style.router,
        experts=style.experts,
        shared=style.shared,
        names=style.names,
    )


def numerics_of(config: Config, style: Style) -> Numerics:
    """What a real run of this decoder needs beyond its shapes."""
    rope = config.raw("rope_parameters", None) or config.raw("rope_scaling", None) or {}
    if not isinstance(rope, dict):
        raise config.error("rope_scaling", "must be an object")
    theta = rope.get("rope_theta") or config.raw("rope_theta", None) or 10000.0
    scaling = tuple((k, v) for k, v in rope.items() if k != "rope_theta")
    return Numerics(
        norm="rmsnorm" if style.norm == "rms" else "layernorm",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        activation=config.text("hidden_act", "silu"),
        gated_mlp=style.gated,
        rope_theta=float(theta) if isinstance(theta, int | float) else 10000.0,
        rope_scaling=scaling,
        normalise_top_k=config.flag("norm_topk_prob", style.moe is not None),
        qk_norm=style.qk_norm == "head",
    )


def _dense_layers(config: Config, style: Style) -> tuple[bool, ...]:
    return style.moe.dense(config) if style.moe else (True,) * config.layers


_Block = tuple[str, tuple[Weight, ...], Experts | None]


def _feed_forward(config: Config, style: Style, dense: bool) -> Callable[[], _Block]:
    """A thunk, so that the fields of a block that no layer has are never asked for."""

    def make() -> _Block:
        if not dense and style.moe:
            moe = moe_of(config, style.moe)
            return "moe", moe.weights(), moe.routed()
        width = config.size(style.moe.dense_width) if style.moe else style.mlp_width(config)
        return "dense", mlp_of(config, style, width).weights(), None

    return make


def _layer(
    config: Config, style: Style, kind: str, attention: parts.Attention, core: Core, block: _Block
) -> Layer:
    name, weights, experts = block
    normed = parts.norms(style.norms, config.size("hidden_size"), style.norm)
    return layer(
        f"{kind}+{name}", attention.weights(), weights, normed, cores=(core,), experts=experts
    )
