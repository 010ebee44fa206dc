"""Nemotron-H and Nemotron 3: one mixer a layer, in the order a pattern string or a list gives."""

from __future__ import annotations

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
from roofcast.simulator.families.hybrid import LINEAR, RENAMED, gqa, stack, state_bytes, top_k
from roofcast.simulator.families.mixers import Mamba2
from roofcast.simulator.families.patterns import FULL

MOE: Final = "moe"
MLP: Final = "mlp"
LETTERS: Final = {"M": LINEAR, "E": MOE, "*": FULL, "-": MLP}
NAMES: Final = parts.Names("mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj")


def build(config: Config) -> Architecture:
    """The model of a nemotron_h file."""
    kinds = _kinds(config, "layer_types", "hybrid_override_pattern")
    if kinds is None:
        raise config.error("hybrid_override_pattern", "is missing, and so is layers_block_type")
    config.ignore("num_hidden_layers", "expand", "attention_head_dim", "mamba_proj_bias")
    config.ignore("intermediate_size", "moe_shared_expert_overlap", "n_shared_experts")
    config.ignore("use_bias", "time_step_rank", "sliding_window")
    layers = stack(kinds, lambda kind: _layer(config, kind))
    tables, output = embeddings_and_head(
        config, table="backbone.embeddings", final_norm="backbone.norm_f", ties=False
    )
    mtp, mtp_experts = _mtp(config)
    return architecture(config, Body(layers, tables, output, mtp, mtp_experts))


def _kinds(config: Config, list_field: str, pattern_field: str) -> tuple[str, ...] | None:
    """Layer kinds from a list of names, else from a pattern like ``MEM*-``."""
    names = (*LETTERS.values(), *RENAMED)
    given = config.names(list_field, None, names)
    pattern = config.raw(pattern_field, None)
    if given is not None:
        return tuple(RENAMED.get(name, name) for name in given)
    if pattern is None:
        return None
    if not isinstance(pattern, str) or not pattern or set(pattern) - set(LETTERS):
        raise config.error(pattern_field, f"must be made of the letters {' '.join(LETTERS)}")
    return tuple(LETTERS[letter] for letter in pattern)


def _layer(config: Config, kind: str) -> Layer:
    hidden = config.size("hidden_size")
    normed = parts.norm("norm", hidden)
    if kind == LINEAR:
        mixer = _mamba(config)
        return layer("mamba2", mixer.weights(), normed, cores=(mixer.core(),))
    if kind == FULL:
        config.ignore("attention_bias")  # the class builds none
        attention = gqa(config, names=NAMES)
        return layer(FULL, attention.weights(), normed, cores=(attention.core(),))
    if kind == MLP:
        return layer(MLP, _mlp(config, "mixer", config.size("intermediate_size")), normed)
    weights, experts = _moe(config)
    return layer(MOE, weights, normed, experts=experts)


def _mamba(config: Config) -> Mamba2:
    bias = config.flag("use_bias")
    return Mamba2(
        hidden=config.size("hidden_size"),
        heads=config.size("mamba_num_heads"),
        head_dim=config.size("mamba_head_dim"),
        state=config.size("ssm_state_size"),
        groups=_either(config, "mamba_n_groups", "n_groups"),
        kernel=_either(config, "mamba_d_conv", "conv_kernel"),
        bias=bias,
        output_bias=bias,
        conv_bias=config.flag("use_conv_bias", True),
        state_bytes=state_bytes(config, "mamba_ssm_cache_dtype"),
    )


def _either(config: Config, first: str, second: str) -> int:
    return config.size(first) if config.has(first) else config.size(second)


def _mlp(config: Config, prefix: str, width: int, *, shared: bool = False) -> tuple[Weight, ...]:
    """Two matrices around a squared ReLU."""
    return parts.Mlp(
        config.size("hidden_size"),
        width,
        gated=False,
        bias=config.flag("mlp_bias"),
        prefix=prefix,
        part="shared_experts" if shared else "mlp",
        ops=("shared_up_proj", "shared_down") if shared else ("up_proj", "down_proj"),
    ).weights()


def _moe(config: Config) -> tuple[tuple[Weight, ...], Experts]:
    """Router, shared expert and routed experts, which may work in a smaller latent space."""
    hidden, count = config.size("hidden_size"), config.size("num_experts")
    latent = config.optional_size("moe_latent_size")
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count),
        config.size("moe_intermediate_size"),
        gated=False,
        expert_hidden=latent,
        router="mixer.gate",
        experts="mixer.experts",
    )
    shared = _mlp(
        config,
        "mixer.shared_experts",
        config.size("moe_shared_expert_intermediate_size"),
        shared=True,
    )
    return moe.weights() + _latent(config, hidden, latent) + shared, moe.routed()


def _latent(config: Config, hidden: int, latent: int | None) -> tuple[Weight, ...]:
    if latent is None:
        return ()
    bias = config.flag("mlp_bias")
    return (
        Weight("mixer.fc1_latent_proj", "moe_latent_in", "other", latent, hidden, bias),
        Weight("mixer.fc2_latent_proj", "moe_latent_out", "other", hidden, latent, bias),
    )


def _mtp(config: Config) -> tuple[tuple[Weight, ...], tuple[Experts, ...]]:
    """Draft layers of the checkpoint, shared by all `num_nextn_predict_layers` drafted tokens."""
    count = config.count("num_nextn_predict_layers")
    kinds = _kinds(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern") or (FULL, MOE)
    if not count:
        return (), ()
    hidden = config.size("hidden_size")
    made = [_layer(config, kind) for kind in kinds]
    merge = (
        Weight("mtp.eh_proj", "mtp_merge", "other", hidden, 2 * hidden),
        *parts.norms(("mtp.enorm", "mtp.hnorm", "mtp.final_layernorm"), hidden),
    )
    weights = tuple(weight for one in made for weight in one.weights)
    return (merge + weights) * count, tuple(one.experts for one in made if one.experts) * count


FAMILIES: Final = (Family(("nemotron_h",), ("NemotronH",), build, layers_at="backbone.layers"),)
