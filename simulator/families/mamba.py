"""Pure state-space models: Mamba, Falcon-Mamba and Mamba-2."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.architecture import Architecture
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import (
    Body,
    Family,
    architecture,
    embeddings_and_head,
    layer,
)
from roofcast.simulator.families.hybrid import fits
from roofcast.simulator.families.mixers import Mamba, Mamba2


def dt_rank(config: Config, field: str) -> int:
    """Rank of the step-size projection; "auto" means a sixteenth of the hidden size, rounded up."""
    if config.raw(field, "auto") == "auto":
        return -(-config.size("hidden_size") // 16)
    return config.size(field)


def _stack(config: Config, kind: str, mixer: Mamba | Mamba2) -> Architecture:
    one = layer(
        kind, mixer.weights(), parts.norm("norm", config.size("hidden_size")), cores=(mixer.core(),)
    )
    tables, output = embeddings_and_head(
        config, table="backbone.embeddings", final_norm="backbone.norm_f"
    )
    return architecture(config, Body((one,) * config.layers, tables, output))


def build_mamba(config: Config) -> Architecture:
    """Mamba: `intermediate_size` counts where given, else `expand` x hidden (Falcon-Mamba)."""
    hidden = config.size("hidden_size")
    expanded = int(config.number("expand", 2) * hidden)
    config.ignore("d_inner", "fused_add_norm", "pad_vocab_size_multiple", "rms_norm", "ssm_cfg")
    mixer = Mamba(
        hidden=hidden,
        width=config.optional_size("intermediate_size") or expanded,
        state=config.size("state_size"),
        kernel=config.size("conv_kernel"),
        rank=dt_rank(config, "time_step_rank"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias", True),
    )
    return _stack(config, "mamba", mixer)


def build_mamba2(config: Config) -> Architecture:
    """Mamba-2: heads x head_dim must be `expand` x hidden."""
    hidden, bias = config.size("hidden_size"), config.flag("use_bias")
    mixer = Mamba2(
        hidden=hidden,
        heads=config.size("num_heads"),
        head_dim=config.size("head_dim"),
        state=config.size("state_size"),
        groups=config.size("n_groups"),
        kernel=config.size("conv_kernel"),
        bias=bias,
        output_bias=bias,
        conv_bias=config.flag("use_conv_bias", True),
    )
    expanded = int(config.number("expand", 2) * hidden)
    fits(config, "num_heads x head_dim", mixer.width, expanded, "expand x hidden_size")
    config.ignore("time_step_rank", "intermediate_size")
    return _stack(config, "mamba2", mixer)


FAMILIES: Final = (
    Family(("mamba",), ("Mamba",), build_mamba, layers_at="backbone.layers"),
    Family(("falcon_mamba",), ("FalconMamba",), build_mamba, layers_at="backbone.layers"),
    Family(("mamba2",), ("Mamba2",), build_mamba2, layers_at="backbone.layers"),
)
