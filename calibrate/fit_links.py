"""What a link between ranks achieves: latency and bandwidth of sums and gathers, by number of ranks.

t = latency + link bytes / bandwidth, with the bytes counted by the simulator's collectives. Where the
device's spec has a link the bandwidth becomes an efficiency of it, which forecasts use; where it has
none (processes of one CPU) it is kept as a measured roof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from roofcast.calibrate.counted import ENGINE
from roofcast.calibrate.fit import Fitted, as_parameters
from roofcast.calibrate.fitting import Sample, Unknown, fit
from roofcast.calibrate.samples import Measurement
from roofcast.hardware import links
from roofcast.hardware.errors import UnknownSpecError
from roofcast.hardware.profile import Parameter
from roofcast.simulator import collectives
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.formats import element_bytes
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.workload import Array, Parallelism, Workload

_OPERATORS = {"all_reduce": "all_reduce", "all_gather": "logits_gather"}
_PATTERNS: Mapping[str, links.Pattern] = {"all_reduce": "all_reduce", "all_gather": "all_gather"}
_FEWEST = 4


def fit_links(fitted: Fitted, measured: Sequence[Measurement], source: str) -> Fitted:
    """Add latency and bandwidth of every collective and number of ranks that was measured."""
    groups: dict[tuple[str, int], list[Measurement]] = {}
    for entry in measured:
        if entry.kind in _OPERATORS and entry.samples_s:
            groups.setdefault((entry.kind, entry.task.whole("ranks")), []).append(entry)
    for (kind, ranks), group in groups.items():
        if len(group) >= _FEWEST:
            fitted = _fit_one(fitted, kind, ranks, group, source)
    return fitted


def link_operator(kind: str, sizes: Sequence[int], ranks: int, dtype: str) -> Operator:
    """The collective of messages of so many bytes, as the simulator counts it.

    >>> link_operator("all_reduce", [1000], 4, "bf16").link_bytes.tolist()
    [1500.0]
    """
    work = Pass(
        _vocabulary(1),
        Workload.decode(np.asarray(sizes) / element_bytes(dtype), 0),
        Parallelism(tensor=ranks),
        activation_dtype=dtype,
        engine=ENGINE,
    )
    if kind == "all_reduce":
        (operator,) = collectives.all_reduce(work)
    else:
        (operator,) = collectives.gather_logits(work)
    return operator


def _vocabulary(size: int) -> Architecture:
    """A model whose hidden vector and logits are `size` elements."""
    return Architecture("link", "link", size, size, layers=(), embeddings=(), head=())


def _fit_one(
    fitted: Fitted, kind: str, ranks: int, group: Sequence[Measurement], source: str
) -> Fitted:
    sizes = [entry.task.whole("bytes") for entry in group]
    moved = link_operator(kind, sizes, ranks, group[0].task.text("dtype")).link_bytes
    times = np.array([entry.median_s for entry in group])
    name = f"{_OPERATORS[kind]}.{ranks}"
    latency, rate = f"collective.latency_s.{name}", f"collective_bytes_per_s.{name}"
    unknowns = [
        Unknown(latency, float(times.min()), 1e-8, 1.0),
        Unknown(rate, float(np.max(moved / times)), 1e5, 1e13),
    ]

    def model(values: Mapping[str, float]) -> Array:
        return np.asarray(values[latency] + moved / values[rate])

    found = fit(model, unknowns, Sample(times))
    parameters = as_parameters(found, source)
    reached = parameters.pop(rate)
    link = _link(fitted, kind, ranks)
    if link is None:
        roofs = {**fitted.profile.roofs, rate: reached.value}
        fitted = replace(fitted, profile=replace(fitted.profile, roofs=roofs))
    else:
        parameters[f"collective.bandwidth_efficiency.{name}"] = _scaled(reached, link.bytes_per_s)
    return fitted.extended(f"collective.{name}", found, parameters)


def _link(fitted: Fitted, kind: str, ranks: int) -> links.Link | None:
    try:
        return links.inside(fitted.device, ranks, _PATTERNS[kind])
    except UnknownSpecError:
        return None


def _scaled(reached: Parameter, peak: float) -> Parameter:
    error = reached.standard_error
    return replace(
        reached,
        value=reached.value / peak,
        unit="1",
        standard_error=None if error is None else error / peak,
    )
