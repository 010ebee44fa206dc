"""A pass as a sum of terms: seconds under a base profile, each with a parameter that scales it.

    pass = sum over terms of parameter x term

A base profile's roofs come first (their efficiencies, curves and exponents stay as they are); a fit
then scales each kind of operator and adds what kernels don't show. Because every term is linear in its
parameter, a whole table of points is one matrix product.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.simulator.operators import Operator, Pass, operators
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.workload import Array

KINDS: Final = ("gemm", "experts", "attention", "state", "elementwise")
COUNTS: Final = ("kernels", "link", "collectives", "layers", "sequences", "steps")
TERMS: Final = KINDS + COUNTS


def pass_terms(work: Pass, device: Accelerator, base: Profile) -> Array:
    """Terms of one pass: (terms, *points). Roof seconds by kind, then counts.

    kernels counts launches outside collectives; link is seconds on the wire, collectives the seconds of
    their latencies under the base profile.
    """
    roofs = Roofs(device, base)
    shape = work.workload.shape
    sums = {name: np.zeros(shape) for name in TERMS}
    for operator in operators(work):
        _add(sums, operator, roofs)
    sums["layers"] = sums["layers"] + len(work.architecture.layers)
    sums["sequences"] = sums["sequences"] + work.sequences
    sums["steps"] = sums["steps"] + 1.0
    return np.stack([np.broadcast_to(sums[name], shape) for name in TERMS])


def _add(sums: dict[str, Array], operator: Operator, roofs: Roofs) -> None:
    time = operator_time(operator, roofs)
    if operator.kind == "collective":
        sums["link"] = sums["link"] + time.link_s
        sums["collectives"] = sums["collectives"] + time.fixed_s
        return
    roof = time.total_s - time.fixed_s
    sums[operator.kind] = sums[operator.kind] + roof
    sums["kernels"] = sums["kernels"] + operator.launches
