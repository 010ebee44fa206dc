"""New kernels under steps measured before: what a profile keeps when kernels are fitted anew.

A profile joins two sources: kernels from tables, and what whole steps add to them (launches, the host,
prompts, scales) from serving points. Either can be fitted anew without the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.hardware.profile import Profile

OF_STEPS: Final = (
    ".scale", ".fixed_scale", ".launch_s", ".skew", "prefill.", "host.", "elementwise.",
)  # fmt: skip
"""What marks a parameter as that of steps: a term where it begins with a dot, else a kind."""


def of_steps(name: str) -> bool:
    """Whether a parameter belongs to steps rather than kernels.

    >>> of_steps("gemm.launch_s"), of_steps("host.step_s"), of_steps("gemm.fixed_s.bf16")
    (True, True, False)
    """
    return any(part in name if part.startswith(".") else name.startswith(part) for part in OF_STEPS)


def with_steps_of(kernels: Profile, earlier: Profile) -> Profile:
    """`kernels` with the step parameters, step errors and intervals of `earlier`, where it has any."""
    kept = {
        name: parameter
        for name, parameter in earlier.parameters.items()
        if of_steps(name) and parameter.origin != "assumed"
    }
    if not kept:
        return kernels
    steps = tuple(each for each in earlier.held_out if not each.of_kernels)
    own = {name: each for name, each in kernels.parameters.items() if not of_steps(name)}
    skew = {n: p for n, p in earlier.parameters.items() if n.endswith(".skew")}
    return replace(
        kernels,
        parameters={**own, **kept, **skew},
        origin=_origin(kernels, earlier),
        valid_range=earlier.valid_range,
        held_out=(*kernels.held_out, *steps),
        band=earlier.band,
        bands=earlier.bands,
        curves=earlier.curves,
        roofs=earlier.roofs,
    )


def _origin(kernels: Profile, earlier: Profile) -> str:
    """Where the kernels come from, then where the steps do."""
    _, found, steps = earlier.origin.partition("; steps")
    return f"{kernels.origin}; steps{steps}" if found else kernels.origin
