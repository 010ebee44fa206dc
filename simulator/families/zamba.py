"""Zamba and Zamba2: state-space layers, and a transformer block shared by several of them.

A shared block is resident once and read at each use; what belongs to a use alone (the output
matrix, Zamba2's low-rank adapters) is resident at each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, AttentionCore, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    kv_heads,
    layer,
)
from roofcast.simulator.families.hybrid import LINEAR, fits, mixers
from roofcast.simulator.families.mamba import dt_rank
from roofcast.simulator.families.mixers import Mamba, Mamba2

HYBRID: Final = "hybrid"


def build_zamba2(config: Config) -> Architecture:
    """Mamba-2 layers; `num_mem_blocks` blocks take turns at the hybrid layers."""
    kinds = mixers(config, (LINEAR, HYBRID), lambda: _zamba2_kinds(config))
    blocks = config.size("num_mem_blocks")
    mixer = _mamba2(config)
    plain = _mixer_layer(config, mixer)
    layers: list[Layer] = []
    uses = 0
    for kind in kinds:
        if kind == LINEAR:
            layers.append(plain)
            continue
        own = _zamba2_adapters(config)
        block, core = _shared_block(config, fused=True, bias=config.flag("add_bias_linear"))
        layers.append(_hybrid_layer(config, mixer, (block, core, own), resident=uses < blocks))
        uses += 1
    config.ignore("hybrid_layer_ids", "use_conv_bias", "use_mem_rope", "use_long_context")
    config.ignore("num_query_groups", "kv_channels", "gated_linear_unit", "sliding_window")
    config.ignore("lora_rank", "conv_dimension", "rope_in_fp32", "state_size")
    tables, output = embeddings_and_head(config, final_norm="model.final_layernorm")
    return architecture(config, Body(tuple(layers), tables, output))


def _zamba2_kinds(config: Config) -> tuple[str, ...]:
    """The layout of the published 54-layer model; the class knows no other without a list."""
    every_sixth = ((LINEAR,) * 5 + (HYBRID,)) * 7
    tail = (LINEAR,) * 4 + (HYBRID,) + (LINEAR,) * 3 + (HYBRID,) + (LINEAR,) * 2
    kinds = (LINEAR, *every_sixth, *tail)
    fits(config, "num_hidden_layers", config.layers, len(kinds), "layers without layers_block_type")
    return kinds


def _mamba2(config: Config) -> Mamba2:
    hidden, bias = config.size("hidden_size"), config.flag("add_bias_linear")
    heads = config.size("n_mamba_heads")
    width = int(config.number("mamba_expand") * hidden)
    dim = config.size("mamba_headdim", max(1, width // heads))
    fits(config, "n_mamba_heads x mamba_headdim", heads * dim, width, "mamba_expand x hidden_size")
    return Mamba2(
        hidden=hidden,
        heads=heads,
        head_dim=dim,
        state=config.size("mamba_d_state"),
        groups=config.size("mamba_ngroups"),
        kernel=config.size("mamba_d_conv"),
        bias=bias,
        output_bias=bias,
        prefix="mamba",
    )


def _zamba2_adapters(config: Config) -> tuple[Weight, ...]:
    """Low-rank additions to the shared matrices, one set a use."""
    hidden, rank = config.size("hidden_size"), config.size("adapter_rank")
    wide = config.size("intermediate_size", 4 * hidden)
    adapted = [("gate_up", hidden, 2 * wide)]
    if config.flag("use_shared_attention_adapter"):
        adapted += [(name, 2 * hidden, 2 * hidden) for name in ("linear_q", "linear_k", "linear_v")]
    made: list[Weight] = []
    for name, columns, rows in adapted:
        at = f"shared_transformer.{name}_adapter"
        made.append(Weight(f"{at}.0", f"{name}_adapter_down", "other", rank, columns))
        made.append(Weight(f"{at}.1", f"{name}_adapter_up", "other", rows, rank))
    return tuple(made)


def build_zamba(config: Config) -> Architecture:
    """Mamba layers; one block for all hybrid layers."""
    kinds = mixers(config, (LINEAR, HYBRID), lambda: _zamba_kinds(config))
    mixer = _mamba(config)
    plain = _mixer_layer(config, mixer)
    layers: list[Layer] = []
    for kind in kinds:
        if kind == LINEAR:
            layers.append(plain)
            continue
        block, core = _shared_block(config, fused=False, bias=False)
        first = all(made is plain for made in layers)
        layers.append(_hybrid_layer(config, mixer, (block, core, ()), resident=first))
    config.ignore("attn_layer_period", "attn_layer_offset")
    tables, output = embeddings_and_head(config, final_norm="model.final_layernorm")
    return architecture(config, Body(tuple(layers), tables, output))


def _zamba_kinds(config: Config) -> tuple[str, ...]:
    period, offset = config.size("attn_layer_period"), config.count("attn_layer_offset")
    late = (HYBRID if i % period == offset else LINEAR for i in range(config.layers - 3))
    return (LINEAR, LINEAR, HYBRID, *late)


def _mamba(config: Config) -> Mamba:
    hidden, heads = config.size("hidden_size"), config.size("n_mamba_heads")
    width = config.size("mamba_expand") * hidden
    if width % heads:
        raise config.error(
            "n_mamba_heads", f"= {heads} must divide mamba_expand x hidden = {width}"
        )
    return Mamba(
        hidden=hidden,
        width=width,
        state=config.size("mamba_d_state"),
        kernel=config.size("mamba_d_conv"),
        rank=dt_rank(config, "mamba_dt_rank"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias", True),
        heads=heads,
        prefix="mamba",
    )


def _mixer_layer(config: Config, mixer: Mamba | Mamba2) -> Layer:
    normed = parts.norm("input_layernorm", config.size("hidden_size"))
    kind = "mamba2" if isinstance(mixer, Mamba2) else "mamba"
    return layer(kind, mixer.weights(), normed, cores=(mixer.core(),))


def _shared_block(
    config: Config, *, fused: bool, bias: bool
) -> tuple[tuple[Weight, ...], AttentionCore]:
    """Attention over the hidden state beside the token's embedding (2 x hidden), then an MLP."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    wide = config.size("attention_hidden_size", 2 * hidden)
    width = config.size("attention_head_dim", max(1, 2 * hidden // heads))
    at = "shared_transformer" if fused else "shared_transf"
    names = parts.Names(*(f"{at}.self_attn.{name}_proj" for name in "qkvo"))
    kv = kv_heads(config, heads)
    attention = parts.Attention(wide, heads, kv, width, width, names=names)
    up = ("gate_up_proj", "gate_up_proj") if fused else ("gate_proj", "up_proj")
    mlp = parts.Mlp(
        hidden,
        config.size("intermediate_size", 4 * hidden),
        bias=bias,
        prefix=f"{at}.feed_forward",
        names=(*up, "down_proj"),
    )
    projected = tuple(
        replace(weight, rows=hidden) if weight.op == "o_proj" else weight
        for weight in attention.weights()
    )
    normed = parts.norm(f"{at}.input_layernorm", wide)
    normed += parts.norm(f"{at}.pre_ff_layernorm", hidden)
    return projected + mlp.weights() + normed, attention.core()


def _hybrid_layer(
    config: Config,
    mixer: Mamba | Mamba2,
    shared: tuple[tuple[Weight, ...], AttentionCore, tuple[Weight, ...]],
    *,
    resident: bool,
) -> Layer:
    """A shared block, its output matrix, then the state-space layer."""
    block, core, own = shared
    hidden = config.size("hidden_size")
    held = tuple(replace(weight, resident=resident) for weight in block)
    mixer = replace(mixer, prefix="mamba_decoder.mamba")
    return layer(
        f"{HYBRID}+dense",
        held,
        own,
        (Weight("linear", "hybrid_out_proj", "other", hidden, hidden),),
        mixer.weights(),
        parts.norm("mamba_decoder.input_layernorm", hidden),
        cores=(core, mixer.core()),
    )


FAMILIES: Final = (
    Family(("zamba",), ("Zamba",), build_zamba),
    Family(("zamba2",), ("Zamba2",), build_zamba2, core_defaults=True),
)
