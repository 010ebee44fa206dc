"""Decoders whose sliding layers have heads of their own: MiMo-V2-Flash, Step 3.5 and 3.7."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from roofcast.simulator.architecture import Architecture, Layer
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    head_dim,
    kv_heads,
    layer,
)
from roofcast.simulator.families.style import LLAMA_NORMS, MoeStyle, Style, mlp_of, moe_of

_PLAIN: Final = Style(mlp_bias="mlp_bias")


def mimo_kinds(config: Config) -> tuple[str, ...]:
    """MiMo-V2-Flash: 1 in `hybrid_layer_pattern` slides; else the first and every sixth are full."""
    given = config.names("layer_types", config.layers, patterns.KINDS)
    pattern = config.wholes("hybrid_layer_pattern", config.layers)
    if given is not None:
        return given
    if pattern is not None:
        return tuple(patterns.SLIDING if slides else patterns.FULL for slides in pattern)
    return tuple(
        patterns.FULL if i == 0 or (i + 1) % 6 == 0 else patterns.SLIDING
        for i in range(config.layers)
    )


def mimo_dense(config: Config) -> tuple[bool, ...]:
    """0 in `moe_layer_freq` is dense; else only the first layer is."""
    frequency = config.wholes("moe_layer_freq", config.layers)
    if frequency is not None:
        return tuple(not sparse for sparse in frequency)
    if config.has("mlp_layer_types"):
        return patterns.first_dense(config)
    return tuple(i == 0 for i in range(config.layers))


def build_mimo(config: Config) -> Architecture:
    """The architecture of a MiMo-V2-Flash file.

    Sliding layers have twice the KV heads unless the file counts them, and attention sinks. The
    file's `sliding_window_size` counts previous tokens only; the new one comes on top.
    """
    heads = config.size("num_attention_heads")
    full = parts.Attention(
        hidden=config.size("hidden_size"),
        query_heads=heads,
        kv_heads=kv_heads(config, heads),
        key_dim=head_dim(config, heads),
        value_dim=config.size("v_head_dim"),
        qkv_bias=config.flag("attention_bias"),
    )
    sliding = replace(
        full,
        query_heads=config.size("swa_num_attention_heads", heads),
        kv_heads=config.size("swa_num_key_value_heads", 2 * full.kv_heads),
        key_dim=config.size("swa_head_dim", full.key_dim),
        value_dim=config.size("swa_v_head_dim", full.value_dim),
        sinks="self_attn.attention_sink_bias"
        if config.flag("add_swa_attention_sink_bias", True)
        else "",
    )
    if sliding.query_heads % sliding.kv_heads:
        raise config.error(
            "swa_num_key_value_heads",
            f"= {sliding.kv_heads} must divide the {sliding.query_heads} query heads",
        )
    config.ignore("attention_chunk_size")  # the window again, where it was trained in chunks
    previous = config.optional_size("sliding_window_size")
    window = previous + 1 if previous else config.optional_size("sliding_window")
    attentions = {patterns.FULL: (full, None), patterns.SLIDING: (sliding, window)}
    return _build(config, Recipe(mimo_kinds(config), mimo_dense(config), attentions, MoeStyle()))


def step_kinds(config: Config) -> tuple[str, ...]:
    """Step: the file's list, which may go on into the next-token-prediction layers."""
    entries = config.items("layer_types")
    if entries is None:
        return (patterns.FULL,) * config.layers
    extra = config.count("num_nextn_predict_layers")
    length = config.layers + extra if len(entries) == config.layers + extra else config.layers
    return (config.names("layer_types", length, patterns.KINDS) or ())[: config.layers]


def step_dense(config: Config) -> tuple[bool, ...]:
    """Step: experts in the layers of `moe_layers_enum`, else from the fourth layer on."""
    if config.has("mlp_layer_types"):
        types = config.names("mlp_layer_types", None, ("dense", "sparse")) or ()
        if len(types) < config.layers:
            raise config.error(
                "mlp_layer_types", f"has {len(types)} entries for {config.layers} layers"
            )
        return tuple(kind == "dense" for kind in types[: config.layers])
    enumerated = config.raw("moe_layers_enum", None)
    if isinstance(enumerated, str):
        sparse = {int(i) for i in enumerated.split(",") if i.strip().isdigit()}
    else:
        sparse = set(config.wholes("moe_layers_enum") or range(3, config.layers))
    config.ignore("first_k_dense_replace")
    return tuple(i not in sparse for i in range(config.layers))


def build_step(config: Config) -> Architecture:
    """The architecture of a Step 3.5 or 3.7 file: gated attention, one gate a head."""
    heads = config.size("num_attention_heads")
    dim = head_dim(config, heads)
    bias = config.flag("attention_bias")
    full = parts.Attention(
        config.size("hidden_size"),
        heads,
        kv_heads(config, heads),
        dim,
        dim,
        bias,
        bias,
        qk_norm="head",
        gate="self_attn.g_proj",
        gate_per_head=True,
    )
    other = config.section("attention_other_setting")
    count = other.size("num_attention_heads", heads)
    count = config.optional_size("num_sliding_attention_heads") or count
    sliding = replace(full, query_heads=count)
    if count % full.kv_heads:
        raise config.error(
            "num_sliding_attention_heads", f"= {count} must be a multiple of {full.kv_heads}"
        )
    window = patterns.window(config)
    attentions = {patterns.FULL: (full, None), patterns.SLIDING: (sliding, window)}
    moe = MoeStyle(shared_width=lambda c: c.size("share_expert_dim"), shared_bias="mlp_bias")
    config.ignore("n_shared_experts", "use_moe_router_bias")
    kinds, dense = step_kinds(config), step_dense(config)
    return _build(config, Recipe(kinds, dense, attentions, moe))


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the two families share: attention by kind of layer, which layers are dense, the experts."""

    kinds: tuple[str, ...]
    dense: tuple[bool, ...]
    attentions: Mapping[str, tuple[parts.Attention, int | None]]
    moe: MoeStyle


def _build(config: Config, recipe: Recipe) -> Architecture:
    keys = tuple(zip(recipe.kinds, recipe.dense, strict=True))
    built = {key: _layer(config, recipe, *key) for key in dict.fromkeys(keys)}
    tables, output = embeddings_and_head(config)
    return architecture(config, Body(tuple(built[key] for key in keys), tables, output))


def _layer(config: Config, recipe: Recipe, kind: str, dense: bool) -> Layer:
    if kind not in recipe.attentions:
        raise config.error("layer_types", f"has {kind!r}, which this family does not build")
    attention, window = recipe.attentions[kind]
    mixer = attention.weights()
    around = parts.norms(LLAMA_NORMS, attention.hidden)
    cores = (attention.core(window=window),)
    if dense:
        mlp = mlp_of(_PLAIN, config).weights()
        return layer(f"{kind}+dense", mixer, mlp, around, cores=cores)
    moe = moe_of(recipe.moe, config, config.size("num_experts_per_tok"))
    experts = moe.routed()
    return layer(f"{kind}+moe", mixer, moe.weights(), around, cores=cores, experts=experts)


FAMILIES: Final = (
    Family(("mimo_v2_flash", "mimo_v2"), ("MiMoV2Flash", "MiMoV2"), build_mimo, "mimo_v2_flash"),
    Family(("step3p5", "step3p7"), ("Step3p5", "Step3p7", "Step3p7Flash"), build_step, "step3p5"),
)
