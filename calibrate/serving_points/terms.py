"""A pass as a sum of terms: seconds under a base profile, each with a parameter that scales it.

    pass = sum over terms of parameter x term

A base profile's roofs and fixed costs come first (its efficiencies, curves and exponents stay as they
are); a fit then scales each kind of operator and adds what kernels don't show. Because every term is
linear in its parameter, a whole table of points is one matrix product.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.simulator.operators import operators
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.serving_costs import weightless_s
from roofcast.simulator.workload import Array

KINDS: Final = ("gemm", "experts", "attention", "state", "elementwise")
ROOFS: Final = tuple(f"{kind}.roof" for kind in KINDS)
LAUNCHED: Final = ("gemm", "attention", "state", "elementwise")
"""Kinds whose kernels cost the same time to launch in a captured step; experts keep their table's."""
KERNELS: Final = tuple(f"{kind}.kernels" for kind in LAUNCHED)
WAITS: Final = ("gemm.weights", "experts.weights")
"""What products of a prompt take longer because their weights have to be read."""
TERMS: Final = (
    *ROOFS, *WAITS, *KERNELS, "experts.fixed", "link", "collectives",
    "launches", "layers", "sequences", "tokens", "steps",
)  # fmt: skip
HOST: Final = ("layers", "sequences", "tokens", "steps")
"""Terms of the host, which follow on what the device does; `launches` is its race with the device."""


def pass_terms(
    work: Pass, device: Accelerator, base: Profile, weighed: tuple[str, ...] = ()
) -> Array:
    """Terms of one pass: (terms, *points). Kinds that are `weighed` count waits for weights apart.

    Seconds of roofs by kind, of the experts' fixed costs, on the wire (link) and of collectives'
    latencies; counts of kernels by kind, of all launches, of layers, sequences, tokens and steps.
    """
    roofs = Roofs(device, base)
    shape = work.workload.shape
    sums = {name: np.zeros(shape) for name in TERMS}
    for operator in operators(work):
        _add(sums, operator, roofs, weighed)
    sums["layers"] = sums["layers"] + len(work.architecture.layers)
    sums["sequences"] = sums["sequences"] + work.sequences
    sums["tokens"] = sums["tokens"] + work.tokens
    sums["steps"] = sums["steps"] + 1.0
    return np.stack([np.broadcast_to(sums[name], shape) for name in TERMS])


def _add(
    sums: dict[str, Array], operator: Operator, roofs: Roofs, weighed: tuple[str, ...]
) -> None:
    time = operator_time(operator, roofs)
    moved = time.total_s - time.fixed_s
    if operator.kind in weighed:
        alone, moved = moved, weightless_s(operator, roofs)
        sums[f"{operator.kind}.weights"] = sums[f"{operator.kind}.weights"] + alone - moved
    sums["launches"] = sums["launches"] + operator.launches
    if operator.kind == "collective":
        sums["link"] = sums["link"] + moved
        sums["collectives"] = sums["collectives"] + time.fixed_s
        return
    kind = operator.kind
    sums[f"{kind}.roof"] = sums[f"{kind}.roof"] + moved
    if kind == "experts":
        sums["experts.fixed"] = sums["experts.fixed"] + time.fixed_s
    else:
        sums[f"{kind}.kernels"] = sums[f"{kind}.kernels"] + operator.launches
