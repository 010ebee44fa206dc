"""Attention in steps that read prompts: what a profile of decode steps cannot tell."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Parameter, Profile
from roofcast.simulator.architecture import Architecture, AttentionCore

_EFFICIENCY = "attention.compute_efficiency"
PROMPT_EFFICIENCY = "attention.prompt_compute_efficiency"
REPEATED = "attention.repeated"


def reading(profile: Profile, device: Accelerator) -> Profile:
    """The profile with the attention of prompts in place of decode's, where it is known.

    A profile whose prompts were measured in whole steps, or an ideal one, stays as it is.
    """
    kernel = _kernel(device)
    if "prefill.scale" in profile.parameters or profile.engine == "ideal" or not kernel:
        return profile
    value = profile.value(PROMPT_EFFICIENCY, kernel["compute_efficiency"])
    own = Parameter(value, "1", kernel["origin"], None, (kernel["source"],), kernel["name"])
    kept = {
        name: parameter
        for name, parameter in profile.parameters.items()
        if not name.startswith(_EFFICIENCY)
    }
    return replace(profile, parameters={**kept, _EFFICIENCY: own})


def mixed_factor(profile: Profile, device: Accelerator, architecture: Architecture) -> float:
    """How many times longer decode attention takes in a step that also reads prompts.

    f = 1 + r (g - 1) with g query heads a KV head and r the share of a group's keys and values that
    each further head reads again; 1 where the kernel packs the group anyway, or has no group, and
    where the profile's prompts were measured in whole steps, which hold it already.
    """
    measured = "prefill.scale" in profile.parameters or profile.engine == "ideal"
    known = 0.0 if measured else _kernel(device).get("repeated", 0.0)
    repeated = profile.value(REPEATED, known)
    groups = [
        core.query_heads / core.kv_heads
        for layer in architecture.layers
        for core in layer.cores
        if isinstance(core, AttentionCore)
    ]
    return 1.0 + repeated * (sum(groups) / len(groups) - 1.0) if groups else 1.0


def _kernel(device: Accelerator) -> Mapping[str, Any]:
    return _kernels().get(device.architecture or "", {})


@cache
def _kernels() -> Mapping[str, Mapping[str, Any]]:
    text = (
        resources.files("roofcast.simulator").joinpath("prompt_attention.toml").read_text("utf-8")
    )
    return {
        name: kernel
        for kernel in tomllib.loads(text)["kernels"]
        for name in kernel["architectures"]
    }
