"""From raw samples to a profile's parameters: kernels fix kernel parameters, decode runs the overheads.

Each stage extends a profile by what it learned and costs the next stage's samples with it, by the very
functions that a forecast uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.counted import Counted, count_all
from roofcast.calibrate.fitting import Estimate, Fit, Sample, Unknown, fit
from roofcast.calibrate.samples import Measurement
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Curve, Parameter, Profile
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.workload import Array

_OVER = {"gemm": ("rows",), "attention": ("batch", "context"), "experts": ("rows",)}
_FEWEST = 4  # measurements that a stage needs


@dataclass(frozen=True)
class Fitted:
    """A profile in the making, the fits behind it, and what they could not settle."""

    device: Accelerator
    profile: Profile
    fits: Mapping[str, Fit]
    warnings: tuple[str, ...] = ()

    def extended(self, name: str, found: Fit, parameters: Mapping[str, Parameter]) -> Fitted:
        """With the parameters of one more stage."""
        profile = replace(self.profile, parameters={**self.profile.parameters, **parameters})
        return replace(
            self,
            profile=profile,
            fits={**self.fits, name: found},
            warnings=self.warnings + doubts(name, found),
        )


def fit_kernels(
    device: Accelerator, engine: str, measured: Sequence[Measurement], source: str
) -> Fitted:
    """Roofs and kernel parameters from micro-benchmarks."""
    usable = [entry for entry in measured if entry.samples_s]
    roofs = measured_roofs(usable)
    profile = Profile(
        name=f"{device.id} under {engine}", device=device.id, engine=engine, origin=source,
        roofs=roofs,
    )  # fmt: skip
    fitted = Fitted(device, profile, {})
    by_kind: dict[str, list[Measurement]] = {}
    for entry in usable:
        by_kind.setdefault(entry.kind, []).append(entry)
    for dtype in sorted({str(entry.facts["dtype"]) for entry in by_kind.get("gemm", [])}):
        rows = [entry for entry in by_kind["gemm"] if entry.facts["dtype"] == dtype]
        fitted = _with_curve(_stage(fitted, "gemm", rows, source, f".{dtype}"), rows, dtype, source)
    for kind in ("attention", "experts"):
        fitted = _stage(fitted, kind, by_kind.get(kind, []), source, "")
    for kind, name in (("norm", "norm_residual"), ("activation",) * 2, ("sampler",) * 2):
        fitted = _stage(fitted, "elementwise", by_kind.get(kind, []), source, f".{name}")
    return fitted


def measured_roofs(measured: Sequence[Measurement]) -> dict[str, float]:
    """Sustained bandwidth of the largest reads; best FLOP/s of any matrix product, by dtype."""
    roofs: dict[str, float] = {}
    reads = [entry for entry in measured if entry.kind == "read"]
    if reads:
        largest = max(entry.task.whole("bytes") for entry in reads)
        rates = [entry.task.whole("bytes") / entry.median_s for entry in reads
                 if entry.task.whole("bytes") == largest]  # fmt: skip
        roofs["memory_bandwidth_bytes_per_s"] = float(np.median(rates))
    for counted in count_all([entry for entry in measured if entry.kind == "gemm"], ("rows",)):
        for operator in counted.operators:
            best = float(np.max(operator.flops / counted.measured_s))
            key = f"peak_flops_per_s.{operator.dtype}"
            roofs[key] = max(roofs.get(key, 0.0), best)
    return roofs


def predict(counted: Counted, device: Accelerator, profile: Profile) -> Array:
    """Seconds of counted kernels under a profile."""
    roofs = Roofs(device, profile)
    total = np.zeros(counted.measured_s.shape)
    for operator in counted.operators:
        total = total + operator_time(operator, roofs).total_s
    return total


def _stage(
    fitted: Fitted, kind: str, measured: Sequence[Measurement], source: str, variant: str
) -> Fitted:
    """Fit the parameters `<kind>.*<variant>` to micro-benchmarks of that kind."""
    if len(measured) < _FEWEST:
        return fitted
    counted = count_all(measured, _OVER.get(kind, ("rows", "batch")))
    unknowns = _unknowns(kind, variant, counted)

    def model(values: Mapping[str, float]) -> Array:
        profile = with_values(fitted.profile, values)
        return np.concatenate([predict(entry, fitted.device, profile) for entry in counted])

    measured_s = [entry.measured_s for entry in counted]
    found = fit(
        model, unknowns, Sample(np.concatenate(measured_s), clusters=clusters(measured_s, unknowns))
    )
    return fitted.extended(f"{kind}{variant}", found, as_parameters(found, source))


def clusters(groups: Sequence[Array], unknowns: Sequence[Unknown]) -> NDArray[np.intp] | None:
    """Labels of rows that err together: those of one shape, if there are shapes enough to tell.

    With fewer than three shapes a parameter the clustered errors would mean nothing.
    """
    if len(groups) < 3 * len(unknowns):
        return None
    return np.repeat(np.arange(len(groups)), [group.size for group in groups])


def _unknowns(kind: str, variant: str, counted: Sequence[Counted]) -> list[Unknown]:
    reach = Unknown(f"{kind}.bandwidth_efficiency{variant}", 0.8, 0.002, 30.0)
    fixed = Unknown(f"{kind}.fixed_s{variant}", 5e-6, 1e-8, 1e-2)
    computes = any(np.any(operator.flops) for entry in counted for operator in entry.operators)
    if not computes:
        return [reach, fixed]
    return [reach, Unknown(f"{kind}.compute_efficiency{variant}", 0.5, 0.0005, 1.5), fixed]


def _with_curve(fitted: Fitted, measured: Sequence[Measurement], dtype: str, source: str) -> Fitted:
    """Add the multiplier over rows: at each height the median of measured over modelled roof time."""
    if len(measured) < _FEWEST:
        return fitted
    ratios: dict[float, list[float]] = {}
    roofs = Roofs(fitted.device, fitted.profile)
    for counted in count_all(measured, ("rows",)):
        for operator in counted.operators:
            time = operator_time(operator, roofs)
            beyond = np.maximum(counted.measured_s - time.fixed_s, 0.1 * counted.measured_s)
            over = beyond / (time.total_s - time.fixed_s)
            for rows, ratio in zip(operator.rows.tolist(), over.tolist(), strict=True):
                ratios.setdefault(rows, []).append(ratio)
    points = tuple(sorted(ratios))
    values = tuple(float(np.median(ratios[rows])) for rows in points)
    curve = Curve("rows", points, values, "measured", (source,))
    curves = {**fitted.profile.curves, f"gemm.rows.{dtype}": curve}
    return replace(fitted, profile=replace(fitted.profile, curves=curves))


def with_values(profile: Profile, values: Mapping[str, float]) -> Profile:
    """The profile with trial values of some parameters."""
    trial = {name: Parameter(value, "", "fitted") for name, value in values.items()}
    return replace(profile, parameters={**profile.parameters, **trial})


def as_parameters(found: Fit, source: str) -> dict[str, Parameter]:
    """Estimates as a profile keeps them."""
    return {estimate.name: _parameter(estimate, source) for estimate in found.estimates}


def _parameter(estimate: Estimate, source: str) -> Parameter:
    unit = "s" if estimate.name.split(".")[1].endswith("_s") else "1"
    note = "" if estimate.status == "ok" else estimate.status
    return Parameter(estimate.value, unit, "fitted", estimate.standard_error, (source,), note)


_CORRELATED = 0.98


def doubts(stage: str, found: Fit) -> tuple[str, ...]:
    """What a fit could not settle, in words."""
    lost = [e.name for e in found.estimates if e.status == "not identifiable"]
    texts = []
    if lost:
        texts.append(f"{stage}: these measurements cannot tell {', '.join(lost)}")
    names = [estimate.name for estimate in found.estimates]
    for i, first in enumerate(names):
        for j in range(i):
            if abs(found.correlations[i, j]) > _CORRELATED:
                texts.append(
                    f"{stage}: {first} and {names[j]} are hard to tell apart "
                    f"(correlation {found.correlations[i, j]:.3f})"
                )
    return tuple(texts)
