"""From raw samples to a profile's parameters: kernels fix kernel parameters, decode runs the overheads.

Each stage extends a profile by what it learned and costs the next stage's samples with it, by the very
functions that a forecast uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofcast.calibrate.counted import KERNELS, Counted, count_all
from roofcast.calibrate.fitting import Estimate, Fit, Model, Sample, Unknown, fit
from roofcast.calibrate.replicates import no_surer_than, replication
from roofcast.calibrate.samples import Measurement
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Curve, Parameter, Profile
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.workload import Array

_OVER = {"gemm": ("rows",), "attention": ("batch", "context"), "experts": ("rows",)}
_FEWEST = 4  # measurements that a stage needs
_OUT_OF_REACH = 1e6
_CHI2_99 = 6.63
NEVER_THE_BOUND = "not identifiable: never the bound in these measurements, so the roof itself"


@dataclass(frozen=True)
class Fitted:
    """A profile in the making, the fits behind it, and what they could not settle.

    `doubt` is 1 where the kernels were measured in quiet, more where others disturbed them.
    """

    device: Accelerator
    profile: Profile
    fits: Mapping[str, Fit]
    warnings: tuple[str, ...] = ()
    doubt: float = 1.0

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
    fitted = Fitted(device, profile, {}, doubt=doubt_of(usable))
    by_kind: dict[str, list[Measurement]] = {}
    for entry in usable:
        by_kind.setdefault(entry.kind, []).append(entry)
    for dtype in sorted({str(entry.facts["dtype"]) for entry in by_kind.get("gemm", [])}):
        rows = [entry for entry in by_kind["gemm"] if entry.facts["dtype"] == dtype]
        fitted = _stage(fitted, Stage("gemm", f".{dtype}", f"gemm.rows.{dtype}"), rows, source)
    for kind, name in (("norm", "norm_residual"), ("activation",) * 2, ("sampler",) * 2):
        fitted = _stage(fitted, Stage("elementwise", f".{name}"), by_kind.get(kind, []), source)
    attention = Stage("attention", curve="attention.rows")
    fitted = _stage(fitted, attention, by_kind.get("attention", []), source)
    experts = by_kind.get("experts", [])
    return _stage(_experts_like_matrices(fitted), Stage("experts"), experts, source)


def _experts_like_matrices(fitted: Fitted) -> Fitted:
    """Where experts run one after another, each is a matrix product of few rows like any other."""
    if fitted.device.kind != "cpu":
        return fitted
    curves = dict(fitted.profile.curves)
    for name, curve in fitted.profile.curves.items():
        curves[name.replace("gemm.", "experts.")] = curve
    parameters = dict(fitted.profile.parameters)
    for name, parameter in fitted.profile.parameters.items():
        if name.startswith("gemm.bandwidth_growth."):
            parameters[name.replace("gemm.", "experts.")] = parameter
    return replace(fitted, profile=replace(fitted.profile, curves=curves, parameters=parameters))


def measured_roofs(measured: Sequence[Measurement]) -> dict[str, float]:
    """Sustained bandwidth of long cold reads; best FLOP/s of any matrix product, by dtype."""
    roofs: dict[str, float] = {}
    rates = _read_rates(measured)
    if rates:
        roofs["memory_bandwidth_bytes_per_s"] = max(rates)
    for counted in count_all([entry for entry in measured if entry.kind == "gemm"], ("rows",)):
        for operator in counted.operators:
            best = float(np.max(operator.flops / counted.measured_s))
            key = f"peak_flops_per_s.{operator.dtype}"
            roofs[key] = max(roofs.get(key, 0.0), best)
    return roofs


_DOUBT_PER_SHARE = 20.0


def doubt_of(measured: Sequence[Measurement]) -> float:
    """1 for kernels measured in quiet; others on a tenth of the processors make it 3."""
    kernels = [e.others for e in measured if e.kind in KERNELS and not np.isnan(e.others)]
    return 1.0 + _DOUBT_PER_SHARE * float(np.mean(kernels)) if kernels else 1.0


_LONG_READ_BYTES = 256 << 20


def _read_rates(measured: Sequence[Measurement]) -> list[float]:
    """Bytes/s of each long read, and of the reference reads spread over the whole calibration."""
    reads = [entry for entry in measured if entry.kind == "read"]
    largest = max((entry.task.whole("bytes") for entry in reads), default=0)
    least = min(_LONG_READ_BYTES, largest)
    rates = [entry.task.whole("bytes") / entry.median_s for entry in reads
             if entry.task.whole("bytes") >= least]  # fmt: skip
    turns = [e.task.whole("bytes") / e.median_s for e in measured if e.kind == "reference"]
    return [*rates, float(np.median(turns))] if turns else rates


def predict(counted: Counted, device: Accelerator, profile: Profile) -> Array:
    """Seconds of counted kernels under a profile."""
    roofs = Roofs(device, profile)
    total = np.zeros(counted.measured_s.shape)
    for operator in counted.operators:
        total = total + operator_time(operator, roofs).total_s
    return total


@dataclass(frozen=True, slots=True)
class Stage:
    """What is fitted to one kind of micro-benchmark: ``<kind>.*<variant>``, and a curve over rows."""

    kind: str
    variant: str = ""
    curve: str = ""


def _stage(fitted: Fitted, stage: Stage, measured: Sequence[Measurement], source: str) -> Fitted:
    """Fit the parameters of a stage, and its curve, all at once."""
    if len(measured) < _FEWEST:
        return fitted
    counted = count_all(measured, _OVER.get(stage.kind, ("rows", "batch")))
    heights = _heights(counted) if stage.curve else ()
    unknowns = _unknowns(stage, counted, fitted) + _multipliers(heights)

    def model(values: Mapping[str, float]) -> Array:
        profile = with_values(fitted.profile, {n: v for n, v in values.items() if n[0] != _ROWS})
        if heights:
            points = tuple(values.get(_point(rows), 1.0) for rows in heights)
            curves = {**profile.curves, stage.curve: Curve("rows", heights, points)}
            profile = replace(profile, curves=curves)
        return np.concatenate([predict(entry, fitted.device, profile) for entry in counted])

    times = [entry.measured_s for entry in counted]
    sample = Sample(np.concatenate(times), clusters=clusters(times, unknowns))
    found, idle = needed_only(model, unknowns, sample)
    found = no_surer_than(found, replication(measured))
    parameters = as_parameters(found, source) | {
        unknown.name: Parameter(1.0, "1", "assumed", None, (source,), NEVER_THE_BOUND)
        for unknown in idle
    }
    done = fitted.extended(f"{stage.kind}{stage.variant}", found, parameters)
    if not heights:
        return done
    curves = {**done.profile.curves, stage.curve: _curve(found, heights, source)}
    return replace(done, profile=replace(done.profile, curves=curves))


_ROWS = "@"  # marks the unknowns that are points of a curve


def _heights(counted: Sequence[Counted]) -> tuple[float, ...]:
    """The heights of the matrix products that were measured."""
    found = {float(r) for entry in counted for o in entry.operators for r in np.ravel(o.rows)}
    return tuple(sorted(found))


def _multipliers(heights: Sequence[float]) -> list[Unknown]:
    """One multiplier a height, except where the efficiencies are quoted: there it is 1.

    Bandwidth is quoted at the height nearest 4, the rate at the largest one: a factor of all
    multipliers could not be told from the efficiencies.
    """
    if not heights:
        return []
    pinned = {min(heights, key=lambda rows: abs(np.log(rows / 4.0))), heights[-1]}
    return [Unknown(_point(rows), 1.0, 0.02, 50.0) for rows in heights if rows not in pinned]


def _point(rows: float) -> str:
    return f"{_ROWS}{rows:g}"


def _curve(found: Fit, heights: Sequence[float], source: str) -> Curve:
    known = {estimate.name: estimate for estimate in found.estimates}
    points = [known.get(_point(rows)) for rows in heights]
    values = tuple(1.0 if each is None else float(each.value) for each in points)
    errors = tuple(0.0 if each is None else float(each.standard_error or 0.0) for each in points)
    return Curve("rows", tuple(heights), values, "fitted", (source,), errors)


def needed_only(
    model: Model, unknowns: Sequence[Unknown], sample: Sample
) -> tuple[Fit, tuple[Unknown, ...]]:
    """Fit, leaving out efficiencies without which the data is explained as well.

    Where a roof is never the bound, the larger of two roofs can still be split between them by noise.
    A roof stays only if lifting it out of reach raises the loss beyond the 99 % quantile of chi
    squared with one degree of freedom, the loss in units of its own mean. Returns the fit and the
    unknowns that were left out.
    """
    whole = fit(model, unknowns, sample)
    idle: list[Unknown] = []
    for unknown in unknowns:
        if ".compute_efficiency" not in unknown.name:
            continue
        rest = [other for other in unknowns if other is not unknown]

        def lifted(values: Mapping[str, float], name: str = unknown.name) -> ArrayLike:
            return model({**values, name: _OUT_OF_REACH})

        alone = fit(lifted, rest, sample)
        scale = _loss(whole.residuals) / max(whole.residuals.size - len(unknowns), 1)
        if _loss(alone.residuals) - _loss(whole.residuals) < _CHI2_99 * scale:
            idle.append(unknown)
            whole = alone
    return whole, tuple(idle)


def _loss(log_ratios: Array) -> float:
    """The loss the fit minimises, in its own units: soft L1 beyond 10 %."""
    return float(np.sum(2 * (np.sqrt(1 + (log_ratios / 0.1) ** 2) - 1)))


def clusters(groups: Sequence[Array], unknowns: Sequence[Unknown]) -> NDArray[np.intp] | None:
    """Labels of rows that err together: those of one shape, if there are shapes enough to tell.

    With fewer than three shapes a parameter the clustered errors would mean nothing.
    """
    if len(groups) < 3 * len(unknowns):
        return None
    return np.repeat(np.arange(len(groups)), [group.size for group in groups])


def _unknowns(stage: Stage, counted: Sequence[Counted], fitted: Fitted) -> list[Unknown]:
    """The parameters of a kind, started where the best measurements are.

    A start far inside one roof would leave the other without a slope: the fit could never find it.
    """
    bandwidth, flops, fastest = _best_rates(counted)
    roofs = Roofs(fitted.device, fitted.profile)
    kind, variant = stage.kind, stage.variant
    reach = bandwidth / roofs.bandwidth_bytes_per_s
    found = [
        _started(f"{kind}.bandwidth_efficiency{variant}", reach, 0.002, 30.0),
        _started(f"{kind}.fixed_s{variant}", fastest / 3, 1e-8, 1e-2),
    ]
    if kind == "gemm":
        found.append(Unknown(f"gemm.bandwidth_growth{variant}", 0.02, 0.0, 0.5))
    if kind == "attention":
        found.append(Unknown(f"attention.activation_factor{variant}", 3.0, 0.01, 300.0))
    if kind == "experts":
        found.append(_started(f"experts.matrix_s{variant}", fastest / 10, 1e-8, 1e-2))
    if flops > 0:
        dtype = next(o.dtype for entry in counted for o in entry.operators if np.any(o.flops))
        rate = flops / roofs.peak(dtype)[1]
        found.append(_started(f"{kind}.compute_efficiency{variant}", rate, 0.0005, 1.5))
    return found


def _started(name: str, start: float, low: float, high: float) -> Unknown:
    return Unknown(name, float(np.clip(start, 2 * low, high / 2)), low, high)


def _best_rates(counted: Sequence[Counted]) -> tuple[float, float, float]:
    """The ninth deciles of bytes/s and FLOP/s, and the shortest time of a launch."""
    bandwidths, rates, times = [], [], []
    for entry in counted:
        launches = sum(operator.launches for operator in entry.operators)
        bandwidths.append(sum(operator.bytes for operator in entry.operators) / entry.measured_s)
        rates.append(sum(operator.flops for operator in entry.operators) / entry.measured_s)
        times.append(entry.measured_s / launches)
    return (
        float(np.quantile(np.concatenate(bandwidths), 0.9)),
        float(np.quantile(np.concatenate(rates), 0.9)),
        float(np.min(np.concatenate(times))),
    )


def with_values(profile: Profile, values: Mapping[str, float]) -> Profile:
    """The profile with trial values of some parameters."""
    trial = {name: Parameter(value, "", "fitted") for name, value in values.items()}
    return replace(profile, parameters={**profile.parameters, **trial})


def as_parameters(found: Fit, source: str) -> dict[str, Parameter]:
    """Estimates as a profile keeps them."""
    own = (estimate for estimate in found.estimates if estimate.name[0] != _ROWS)
    return {estimate.name: _parameter(estimate, source) for estimate in own}


def _parameter(estimate: Estimate, source: str) -> Parameter:
    unit = "s" if estimate.name.split(".")[1].endswith("_s") else "1"
    note = "" if estimate.status == "ok" else estimate.status
    return Parameter(
        float(estimate.value), unit, "fitted", estimate.standard_error, (source,), note
    )


_CORRELATED = 0.98
_LOST = "not identifiable"


def doubts(stage: str, found: Fit) -> tuple[str, ...]:
    """What a fit could not settle, in words."""
    own = [i for i, e in enumerate(found.estimates) if e.name[0] != _ROWS]
    names = [found.estimates[i].name for i in own]
    lost = [found.estimates[i].name for i in own if found.estimates[i].status == _LOST]
    texts = []
    if lost:
        texts.append(f"{stage}: these measurements cannot tell {', '.join(lost)}")
    for k, i in enumerate(own):
        for j in own[:k]:
            if abs(found.correlations[i, j]) > _CORRELATED:
                texts.append(
                    f"{stage}: {names[k]} and {found.estimates[j].name} are hard to tell apart "
                    f"(correlation {found.correlations[i, j]:.3f})"
                )
    return tuple(texts)
