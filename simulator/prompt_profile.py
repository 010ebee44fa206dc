"""A profile as it holds for reading prompts: whole prompts reach peaks that decode never sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.hardware.profile import Parameter, Profile

_KEPT: Final = ("collective.", "gemm.", "experts.")
_OF_STEPS: Final = ("scale", "fixed_scale", "fixed_s", "matrix_s", "launch_s", "skew")
_HOST: Final = ("layer_s", "step_s")


def prompt_profile(profile: Profile) -> Profile:
    """The profile of a pass that reads prompts; the profile itself where only decode was measured.

    Products take `prefill.scale` times as long as their kernels alone (`prefill.experts_scale` those of
    experts), caches `prefill.attention_scale` times their roofs; element-wise operators move their
    bytes `prefill.activation_factor` times; launches are the host's, `prefill.layer_s` a layer and
    `prefill.step_s` a pass, and `prefill.state_s` each kernel of a recurrent mixer, whose scans of a
    prompt are many small launches. Collectives stay as they are.
    """
    scale = profile.parameters.get("prefill.scale")
    if scale is None:
        return profile
    kept = {
        name: parameter
        for name, parameter in profile.parameters.items()
        if name.startswith(_KEPT) and name.split(".")[1] not in _OF_STEPS
    }
    kept["prefill.scale"] = kept["gemm.scale"] = scale
    kept["experts.scale"] = profile.parameters.get("prefill.experts_scale", scale)
    caches = profile.parameters.get("prefill.attention_scale", scale)
    kept["attention.scale"] = kept["state.scale"] = caches
    traffic = profile.parameters.get("prefill.activation_factor")
    if traffic is not None:
        kept["elementwise.scale"] = traffic
    state = profile.parameters.get("prefill.state_s")
    if state is not None:
        kept["state.launch_s"] = state
    for name in _HOST:
        cost = profile.parameters.get(f"prefill.{name}")
        if cost is not None:
            kept[f"host.{name}"] = cost
    silent = Parameter(0.0, "1", "assumed", note="not counted when prompts are read")
    kept["collective.fixed_scale"] = silent
    return replace(profile, parameters=kept, curves={})
