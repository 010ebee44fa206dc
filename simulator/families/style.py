"""Decoders that are Llama with differences: the differences as data, one builder for all.

A `Style` says how a family deviates. Where a difference is a switch in config.json, the style holds
the switch's name; where it is a fact of the family, it holds the fact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from roofcast.simulator.architecture import Architecture, Layer, Numerics, Weight
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
from roofcast.simulator.families.mtp import Mtp, mtp_layers
from roofcast.simulator.families.numerics import numerics_of

Switch = str | bool
LLAMA_NAMES: Final = parts.Names()


def fixed(*paths: str) -> Callable[[Config], tuple[str, ...]]:
    """The same paths whatever the file says."""
    return lambda config: paths


LLAMA_NORMS: Final = ("input_layernorm", "post_attention_layernorm")
BOTH_NORMS: Final = fixed(*LLAMA_NORMS)


def nothing(config: Config) -> tuple[Weight, ...]:
    """No weights."""
    return ()


def ordinary(config: Config, numerics: Numerics) -> Numerics:
    """Arithmetic with nothing out of the ordinary."""
    return numerics


def own_width(config: Config) -> int:
    """The width of a plain MLP."""
    return config.size("intermediate_size")


def plain_head_dim(config: Config, heads: int) -> int:
    """hidden / heads, whatever else the file says: its class has no head_dim."""
    return head_dim(config, heads, field_name="")


def no_shared(config: Config) -> int:
    """No shared expert."""
    return 0


def shared_experts(config: Config) -> int:
    """`n_shared_experts` experts of the routed experts' width, built as one MLP (DeepSeek, GLM)."""
    return config.count("n_shared_experts") * config.size("moe_intermediate_size")


@dataclass(frozen=True, slots=True)
class MoeStyle:
    """How a family's mixture-of-experts blocks are sized and which layers have one.

    `width` names the field with the experts' width; `dense` gives, for each layer, whether it has a
    plain MLP instead. `shared_width` gives the width of all shared experts together.
    """

    width: str = "moe_intermediate_size"
    dense: Callable[[Config], tuple[bool, ...]] = patterns.never_dense
    dense_width: str = "intermediate_size"
    shared_width: Callable[[Config], int] = no_shared
    shared_bias: Switch = False
    shared_gate: bool = False
    expert_bias: bool = False
    router_bias: Switch = False
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    shared: str = "mlp.shared_experts"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Style:
    """How one family's decoder differs from Llama's.

    `tables` adds embedding tables (positions), `extra` adds weights to every layer. `understood` are
    fields whose only known values say what the style says anyway. `runs` says that the Torch decoder
    can run the family, `rope` False that its positions are learned, `arithmetic` what else it computes.
    """

    qkv_bias: Switch = False
    output_bias: Switch = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    gated: bool = True
    qk_norm: parts.QkNorm = "none"
    qk_norm_switch: Switch = True
    sinks: str = ""
    gate: str = ""
    norm: parts.NormKind = "rms"
    norms: Callable[[Config], tuple[str, ...]] = BOTH_NORMS
    final_norm: str = "model.norm"
    table: str = "model.embed_tokens"
    tables: Callable[[Config], tuple[Weight, ...]] = nothing
    extra: Callable[[Config], tuple[Weight, ...]] = nothing
    output: str = "lm_head"
    names: parts.Names = LLAMA_NAMES
    mlp_prefix: str = "mlp"
    mlp_names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    mlp_width: Callable[[Config], int] = own_width
    head_dim: Callable[[Config, int], int] = head_dim
    kv_heads: Callable[[Config, int], int] = kv_heads
    kinds: patterns.Rule = patterns.all_full
    window: Callable[[Config], int | None] = patterns.window
    moe: MoeStyle | None = None
    mtp: Mtp | None = None
    understood: tuple[str, ...] = ()
    runs: bool = False
    rope: bool = True
    arithmetic: Callable[[Config, Numerics], Numerics] = ordinary


def build(style: Style) -> Callable[[Config], Architecture]:
    """The builder of a family with this style."""
    return partial(from_config, style)


def from_config(style: Style, config: Config) -> Architecture:
    """The architecture of a file of a family with this style."""
    config.ignore(*style.understood)
    recipes = _recipes(style, config)
    built = {recipe: _layer(style, config, *recipe) for recipe in dict.fromkeys(recipes)}
    layers = tuple(built[recipe] for recipe in recipes)
    tables, output = embeddings_and_head(
        config,
        table=style.table,
        final_norm=style.final_norm,
        norm=style.norm,
        output=style.output,
        head_bias=switch(config, style.head_bias),
    )
    mtp = mtp_layers(config, style.mtp, layers[-1]) if style.mtp else ((), ())
    numerics = numerics_of(config, style) if style.runs else None
    tables += style.tables(config)
    return architecture(config, Body(layers, tables, output, *mtp, numerics=numerics))


def switch(config: Config, value: Switch) -> bool:
    """A switch of the file where a name is given, else the fact itself."""
    return config.flag(value) if isinstance(value, str) else value


def attention_of(style: Style, config: Config) -> parts.Attention:
    """The attention every layer of this file has."""
    heads = config.size("num_attention_heads")
    width = style.head_dim(config, heads)
    return parts.Attention(
        hidden=config.size("hidden_size"),
        query_heads=heads,
        kv_heads=style.kv_heads(config, heads),
        key_dim=width,
        value_dim=width,
        qkv_bias=switch(config, style.qkv_bias),
        output_bias=switch(config, style.output_bias),
        qk_norm=style.qk_norm if switch(config, style.qk_norm_switch) else "none",
        sinks=style.sinks,
        gate=style.gate,
        names=style.names,
    )


def mlp_of(style: Style, config: Config) -> parts.Mlp:
    """The plain MLP of this file."""
    dense = style.moe and style.moe.dense_width
    return parts.Mlp(
        config.size("hidden_size"),
        config.size(dense) if dense else style.mlp_width(config),
        gated=style.gated,
        bias=switch(config, style.mlp_bias),
        prefix=style.mlp_prefix,
        names=style.mlp_names,
    )


def moe_of(style: MoeStyle, config: Config, top_k: int) -> parts.Moe:
    """The mixture-of-experts block of this file."""
    count = config.size("num_experts")
    if top_k > count:
        raise config.error(
            "num_experts_per_tok", f"= {top_k} is more than the model's {count} experts"
        )
    return parts.Moe(
        config.size("hidden_size"),
        count,
        top_k,
        config.size(style.width),
        bias=style.expert_bias,
        router_bias=switch(config, style.router_bias),
        shared_width=style.shared_width(config),
        shared_bias=switch(config, style.shared_bias),
        shared_gate=style.shared_gate,
        router=style.router,
        experts=style.experts,
        shared=style.shared,
        names=style.names,
    )


def _recipes(style: Style, config: Config) -> tuple[tuple[str, int], ...]:
    """For each layer its attention's kind and the experts a token uses, 0 for a plain MLP."""
    kinds = style.kinds(config)
    if style.moe is None:
        return tuple((kind, 0) for kind in kinds)
    dense = style.moe.dense(config)
    if all(dense):
        return tuple((kind, 0) for kind in kinds)
    top_k = config.per_layer("num_experts_per_tok", config.layers)
    return tuple(
        (kind, 0 if plain else k) for kind, plain, k in zip(kinds, dense, top_k, strict=True)
    )


def _layer(style: Style, config: Config, kind: str, top_k: int) -> Layer:
    attention = attention_of(style, config)
    core = attention.core(
        window=None if kind == patterns.FULL else style.window(config),
        chunked=kind == patterns.CHUNKED,
    )
    around = parts.norms(style.norms(config), config.size("hidden_size"), style.norm)
    around += style.extra(config)
    if not (style.moe and top_k):
        mlp = mlp_of(style, config).weights()
        return layer(f"{kind}+dense", attention.weights(), mlp, around, cores=(core,))
    moe = moe_of(style.moe, config, top_k)
    return layer(
        f"{kind}+moe",
        attention.weights(),
        moe.weights(),
        around,
        cores=(core,),
        experts=moe.routed(),
    )
