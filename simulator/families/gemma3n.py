"""Gemma 3n: AltUp (several residual streams), LAuReL, per-layer embeddings, shared caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts, patterns
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.gemma_per_layer import (
    per_layer_gate,
    per_layer_tables,
    reusing,
)
from roofcast.simulator.families.hybrid import gqa, stack

NORMS: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def build(config: Config) -> Architecture:
    """The model of a gemma3n file."""
    kinds = patterns.listed(patterns.every(5, ""))(config)
    widths = config.per_layer("intermediate_size", config.layers)
    config.ignore("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip")
    config.ignore("altup_correct_scale")
    keys = zip(kinds, reusing(config, kinds), widths, strict=True)
    layers = stack(keys, lambda key: _layer(config, *key))
    tables, output = embeddings_and_head(config)
    streams, width = config.size("altup_num_inputs"), config.size("hidden_size_per_layer_input")
    tables += per_layer_tables(config, width)
    body = Body(
        layers,
        tables + _streams(config, "altup_projections", "altup_in", streams),
        _streams(config, "altup_unembed_projections", "altup_out", streams) + output,
        hidden_copies=streams,
    )
    return architecture(config, body)


def _streams(config: Config, name: str, op: str, streams: int) -> tuple[Weight, ...]:
    """One square matrix for each residual stream beside the first."""
    hidden = config.size("hidden_size")
    return tuple(
        Weight(f"model.{name}.{i}", op, "other", hidden, hidden) for i in range(streams - 1)
    )


def _layer(config: Config, kind: str, reuses: bool, width: int) -> Layer:
    hidden, streams = config.size("hidden_size"), config.size("altup_num_inputs")
    attention = replace(
        gqa(config, bias=config.flag("attention_bias"), qk_norm="head"), own_kv=not reuses
    )
    window = patterns.window(config) if kind == patterns.SLIDING else None
    made = layer(
        f"{kind}{'_shared_kv' if reuses else ''}+dense",
        attention.weights(),
        parts.Mlp(hidden, width).weights(),
        parts.norms(NORMS, hidden),
        _altup(hidden, streams),
        _laurel(hidden, config.size("laurel_rank")),
        per_layer_gate(hidden, config.size("hidden_size_per_layer_input")),
        cores=(attention.core(window=window),),
    )
    # Prediction multiplies the streams by a streams x streams matrix made from the token.
    return replace(made, mixing_flops=2 * streams * streams * hidden)


def _altup(hidden: int, streams: int) -> tuple[Weight, ...]:
    """Alternating updates: the router runs twice a layer, to predict and to correct."""
    router = Weight("altup.modality_router", "altup_router", "other", streams, hidden)
    return (
        router,
        replace(router, op="altup_router_again", resident=False),
        Weight("altup.prediction_coefs", "altup_prediction", "other", streams**2, streams),
        Weight("altup.correction_coefs", "altup_correction", "other", streams, streams),
        parts.vector("altup.correct_output_scale", hidden, "other", op="altup_correction"),
        *parts.norm("altup.router_norm", hidden),
    )


def _laurel(hidden: int, rank: int) -> tuple[Weight, ...]:
    """Learned augmented residual: a low-rank path beside attention."""
    return (
        Weight("laurel.linear_left", "laurel_left", "other", rank, hidden),
        Weight("laurel.linear_right", "laurel_right", "other", hidden, rank),
        *parts.norm("laurel.post_laurel_norm", hidden),
    )


FAMILIES: Final = (
    Family(
        ("gemma3n_text", "gemma3n"),
        ("Gemma3n",),
        build,
        defaults_of="gemma3n_text",
        layers_at="model.language_model.layers",
    ),
)
