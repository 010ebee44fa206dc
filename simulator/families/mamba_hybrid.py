"""Attention and state spaces in one stack: Bamba, Granite 4 H, Falcon-H1, Jamba."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture, Layer
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import LINEAR, fits, gqa, mixers, stack, top_k
from roofcast.simulator.families.mamba import dt_rank
from roofcast.simulator.families.mixers import Mamba, Mamba2
from roofcast.simulator.families.patterns import FULL
from roofcast.simulator.families.style import LLAMA_NORMS

JAMBA_NORMS: Final = ("input_layernorm", "pre_ff_layernorm")
FUSED: Final = ("input_linear", "input_linear", "output_linear")


def mamba2_of(config: Config, width: int, *, output_bias: bool, normed: bool = True) -> Mamba2:
    """The Mamba-2 mixer of Bamba's kin: `width` channels in `mamba_n_heads` heads."""
    heads = config.size("mamba_n_heads")
    given = config.raw("mamba_d_head", "auto")
    dim = width // heads if given in ("auto", None) else config.size("mamba_d_head")
    fits(config, "mamba_n_heads x mamba_d_head", heads * dim, width, "the mixer's width")
    return Mamba2(
        hidden=config.size("hidden_size"),
        heads=heads,
        head_dim=dim,
        state=config.size("mamba_d_state"),
        groups=config.size("mamba_n_groups"),
        kernel=config.size("mamba_d_conv"),
        bias=config.flag("mamba_proj_bias"),
        output_bias=output_bias,
        conv_bias=config.flag("mamba_conv_bias", True),
        normed=normed,
        prefix="mamba",
    )


def _expanded(config: Config) -> int:
    return config.size("mamba_expand") * config.size("hidden_size")


# ---- Bamba ----------------------------------------------------------------------------------------


def build_bamba(config: Config) -> Architecture:
    """Mamba-2 layers, attention at `attn_layer_indices`, a dense MLP in each."""
    attention_at = frozenset(config.wholes("attn_layer_indices") or ())
    kinds = (FULL if i in attention_at else LINEAR for i in range(config.layers))
    config.ignore("layer_types", "mamba_expand")
    layers = stack(kinds, lambda kind: _bamba_layer(config, kind))
    tables, output = embeddings_and_head(config, final_norm="model.final_layernorm")
    return architecture(config, Body(layers, tables, output))


def _bamba_layer(config: Config, kind: str) -> Layer:
    hidden = config.size("hidden_size")
    mlp = parts.Mlp(
        hidden,
        config.size("intermediate_size"),
        bias=config.flag("mlp_bias"),
        prefix="feed_forward",
    )
    mixer: Mamba2 | parts.Attention = (
        mamba2_of(config, _expanded(config), output_bias=config.flag("mamba_proj_bias"))
        if kind == LINEAR
        else gqa(config, bias=config.flag("attention_bias"))
    )
    weights = mixer.weights(), mlp.weights(), parts.norms(JAMBA_NORMS, hidden)
    return layer(f"{kind}+dense", *weights, cores=(mixer.core(),))


# ---- Granite 4 H ----------------------------------------------------------------------------------


def build_granite(config: Config) -> Architecture:
    """Mamba-2 and attention; a shared MLP in each layer, experts besides where there are any."""
    kinds = mixers(config, (LINEAR, FULL), lambda: (LINEAR,) * config.layers)
    config.ignore("mamba_expand")
    layers = stack(kinds, lambda kind: _granite_layer(config, kind))
    tables, output = embeddings_and_head(config)
    return architecture(config, Body(layers, tables, output))


def _granite_layer(config: Config, kind: str) -> Layer:
    hidden, count = config.size("hidden_size"), config.count("num_experts")
    mixer: Mamba2 | parts.Attention = (
        mamba2_of(config, _expanded(config), output_bias=config.flag("mamba_proj_bias"))
        if kind == LINEAR
        else gqa(config, bias=config.flag("attention_bias"))
    )
    shared = parts.Mlp(
        hidden,
        config.size("shared_intermediate_size"),
        prefix="shared_mlp",
        names=FUSED,
        part="shared_experts" if count else "mlp",
        ops=("shared_gate_up", "shared_down") if count else ("gate_up_proj", "down_proj"),
    )
    weights = mixer.weights(), shared.weights(), parts.norms(LLAMA_NORMS, hidden)
    if not count:
        config.ignore("intermediate_size", "num_experts_per_tok")
        return layer(f"{kind}+dense", *weights, cores=(mixer.core(),))
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count),
        config.size("intermediate_size"),
        router="block_sparse_moe.router.layer",
        experts="block_sparse_moe",
        names=FUSED,
    )
    routed = moe.routed()
    return layer(f"{kind}+moe", *weights, moe.weights(), cores=(mixer.core(),), experts=routed)


# ---- Falcon-H1 ------------------------------------------------------------------------------------


def build_falcon_h1(config: Config) -> Architecture:
    """Attention and Mamba-2 side by side in every layer."""
    hidden = config.size("hidden_size")
    mixer = mamba2_of(
        config,
        config.optional_size("mamba_d_ssm") or _expanded(config),
        output_bias=config.flag("projectors_bias"),
        normed=config.flag("mamba_rms_norm"),
    )
    attention = gqa(config, bias=config.flag("attention_bias"))
    mlp = parts.Mlp(
        hidden,
        config.size("intermediate_size"),
        bias=config.flag("mlp_bias"),
        prefix="feed_forward",
    )
    one = layer(
        "attention_and_mamba2+dense",
        attention.weights(),
        mixer.weights(),
        mlp.weights(),
        parts.norms(JAMBA_NORMS, hidden),
        cores=(attention.core(), mixer.core()),
    )
    config.ignore("layer_types", "mamba_expand", "mamba_use_mlp", "attn_layer_indices")
    config.ignore("mlp_expansion_factor")
    tables, output = embeddings_and_head(config, final_norm="model.final_layernorm")
    return architecture(config, Body((one,) * config.layers, tables, output))


# ---- Jamba ----------------------------------------------------------------------------------------


def build_jamba(config: Config) -> Architecture:
    """Mamba with attention every `attn_layer_period`, experts every `expert_layer_period`."""
    attends = _periodic(config, "attn_layer")
    sparse = _periodic(config, "expert_layer")
    count = config.count("num_experts")
    config.ignore("layer_types", "num_experts_per_tok", "mamba_inner_layernorms", "sliding_window")
    config.ignore("calc_logits_for_entire_prompt")
    keys = ((a, s and count > 1) for a, s in zip(attends, sparse, strict=True))
    layers = stack(keys, lambda key: _jamba_layer(config, *key))
    tables, output = embeddings_and_head(config, final_norm="model.final_layernorm")
    return architecture(config, Body(layers, tables, output))


def _periodic(config: Config, prefix: str) -> tuple[bool, ...]:
    period, offset = config.size(f"{prefix}_period"), config.count(f"{prefix}_offset")
    if offset >= period:
        raise config.error(f"{prefix}_offset", f"= {offset} must be less than the period {period}")
    return tuple(i % period == offset for i in range(config.layers))


def _jamba_layer(config: Config, attends: bool, sparse: bool) -> Layer:
    hidden, width = config.size("hidden_size"), config.size("intermediate_size")
    mixer: Mamba | parts.Attention = gqa(config) if attends else _jamba_mamba(config)
    kind = FULL if attends else LINEAR
    weights = mixer.weights(), parts.norms(JAMBA_NORMS, hidden)
    if not sparse:
        mlp = parts.Mlp(hidden, width, prefix="feed_forward")
        return layer(f"{kind}+dense", *weights, mlp.weights(), cores=(mixer.core(),))
    count = config.size("num_experts")
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count),
        width,
        router="feed_forward.router",
        experts="feed_forward.experts",
    )
    routed = moe.routed()
    return layer(f"{kind}+moe", *weights, moe.weights(), cores=(mixer.core(),), experts=routed)


def _jamba_mamba(config: Config) -> Mamba:
    return Mamba(
        hidden=config.size("hidden_size"),
        width=_expanded(config),
        state=config.size("mamba_d_state"),
        kernel=config.size("mamba_d_conv"),
        rank=dt_rank(config, "mamba_dt_rank"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias", True),
        inner_norms=True,
        prefix="mamba",
    )


FAMILIES: Final = (
    Family(("bamba",), ("Bamba",), build_bamba),
    Family(("granitemoehybrid",), ("GraniteMoeHybrid",), build_granite),
    Family(("falcon_h1",), ("FalconH1",), build_falcon_h1),
    Family(("jamba",), ("Jamba",), build_jamba),
)
