"""LongCat-Flash: two latent attentions, two MLPs and one expert block side by side in each layer.

A third of the router's slots are zero experts that compute nothing, so a token runs fewer real
experts than it picks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import fits, top_k

PAIR: Final = (0, 1)


def build(config: Config) -> Architecture:
    """The model of a longcat_flash file."""
    config.ignore("head_dim", "num_key_value_heads", "zero_expert_type", "attention_method")
    one = _layer(config)
    tables, output = embeddings_and_head(config)
    built = architecture(config, Body((one,) * config.layers, tables, output))
    unused = sum(
        w.parameters for layer_ in built.layers for w in layer_.weights if w.use == "unused"
    )
    if not unused:
        return built
    note = (
        f"parameters include {unused / 1e9:.1f} billion that transformers allocates for the zero "
        "experts; checkpoints and engines hold none of them, and bytes leave them out"
    )
    return replace(built, warnings=(*built.warnings, note))


def _layer(config: Config) -> Layer:
    hidden = config.size("hidden_size")
    attention = [_latent(config, f"self_attn.{i}") for i in PAIR]
    mlps = [parts.Mlp(hidden, config.size("intermediate_size"), prefix=f"mlps.{i}") for i in PAIR]
    names = (
        f"{name}.{i}" for name in ("input_layernorm", "post_attention_layernorm") for i in PAIR
    )
    count, zero = config.size("num_experts"), config.count("zero_expert_num")
    width = config.size("moe_intermediate_size")
    moe = parts.Moe(
        hidden,
        count,
        top_k(config, count + zero),
        width,
        router="mlp.router.classifier",
        experts="mlp.experts",
    )
    router = Weight(
        "mlp.router.classifier",
        "router",
        "router",
        count + zero,
        hidden,
        config.flag("router_bias"),
    )
    phantom = Weight(
        "mlp.experts.gate_up_proj",
        "zero_experts",
        "experts",
        zero * 2 * width,
        hidden,
        use="unused",
    )
    return layer(
        "latent_attention+dense+moe",
        *(one.weights() for one in attention),
        *(one.weights() for one in mlps),
        parts.norms(names, hidden),
        (router, phantom) if zero else (router,),
        cores=tuple(one.core() for one in attention),
        experts=replace(moe.routed(), zero=zero),
    )


def _latent(config: Config, prefix: str) -> parts.Latent:
    rope, nope = config.size("qk_rope_head_dim"), config.size("qk_nope_head_dim")
    whole = config.size("qk_head_dim", nope + rope)
    fits(config, "qk_head_dim", whole, nope + rope, "qk_nope_head_dim + qk_rope_head_dim")
    return parts.Latent(
        hidden=config.size("hidden_size"),
        heads=config.size("num_attention_heads"),
        query_rank=config.size("q_lora_rank"),
        latent=config.size("kv_lora_rank"),
        rope=rope,
        nope=nope,
        value=config.size("v_head_dim"),
        bias=config.flag("attention_bias"),
        prefix=prefix,
    )


FAMILIES: Final = (Family(("longcat_flash",), ("LongcatFlash", "Longcat"), build),)
