"""What a step costs beyond its kernels: fitted to real decode runs, the kernels already known.

Decode runs fix the host's share, and how much longer than alone kernels of a kind take in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofcast.calibrate.counted import ENGINE
from roofcast.calibrate.fit import Fitted, as_parameters, clusters, with_values
from roofcast.calibrate.fitting import Fit, Sample, Unknown, fit
from roofcast.calibrate.samples import Measurement
from roofcast.calibrate.shapes import Scale, find_shape
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.simulator.passes import Pass
from roofcast.simulator.prediction import Forecast, forecast_pass, host_time
from roofcast.simulator.workload import Array, Workload

_HOST = ("host.step_s", "host.layer_s", "host.sequence_s")
_LIMITS = {
    "host.step_s": 0.05,
    "host.layer_s": 0.01,
    "host.sequence_s": 0.005,
    "host.kernel_s": 1e-3,
}


@dataclass(frozen=True)
class Runs:
    """Decode runs of one model shape: what they computed, and the medians measured."""

    shape: str
    held_out: bool
    work: Pass
    measured_s: Array

    @property
    def size(self) -> int:
        """Number of runs."""
        return int(self.measured_s.size)

    @property
    def context(self) -> Array:
        """Context of each run."""
        return self.work.workload.context

    def where(self, chosen: Array) -> Runs:
        """Only the runs that a boolean array selects."""
        old = self.work.workload
        workload = Workload(old.batch[chosen], old.context[chosen], old.new)
        return replace(
            self, work=replace(self.work, workload=workload), measured_s=self.measured_s[chosen]
        )


def decode_runs(measured: Sequence[Measurement], scale: Scale) -> tuple[Runs, ...]:
    """The decode runs with samples, one entry a shape and dtype."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for entry in measured:
        if entry.kind == "decode" and entry.samples_s:
            key = (entry.task.text("shape"), entry.task.text("dtype"))
            groups.setdefault(key, []).append(entry)
    return tuple(_runs(name, dtype, group, scale) for (name, dtype), group in groups.items())


def _runs(name: str, dtype: str, group: Sequence[Measurement], scale: Scale) -> Runs:
    shape = find_shape(name, scale)
    workload = Workload.decode(
        [entry.task.whole("batch") for entry in group],
        [entry.task.whole("context") for entry in group],
    )
    work = Pass(
        shape.architecture(dtype), workload, kv_dtype=dtype, activation_dtype=dtype, engine=ENGINE
    )
    return Runs(name, shape.held_out, work, np.array([entry.median_s for entry in group]))


def forecast_s(runs: Runs, device: Accelerator, profile: Profile) -> Array:
    """The step times a profile forecasts for runs."""
    return forecast_pass(runs.work, device, profile).step_time_s


def host_parameters(fitted: Fitted) -> tuple[str, ...]:
    """What the host can cost: dispatch, too, where the device runs ahead of it kernel by kernel."""
    waits = fitted.device.kind != "cpu" and fitted.profile.engine == "torch"
    return (*_HOST, "host.kernel_s") if waits else _HOST


def fit_overheads(fitted: Fitted, runs: Sequence[Runs], source: str) -> Fitted:
    """Add the host's parameters, and the kernels' scales, to a profile that knows its kernels."""
    if not runs:
        return fitted
    found = _fit(fitted, runs)
    return fitted.extended("host", found, as_parameters(found, source))


def with_kernel_errors(
    fitted: Fitted, runs: Sequence[Runs], fitter: Callable[[Fitted, Sequence[Runs]], Fitted]
) -> Fitted:
    """Widen the standard errors of the host's parameters by what the kernels' errors do to them.

    The host gets what the kernels leave, so an error there moves it. To first order, with the
    kernels' parameters independent: var += sum over k of (host at k + its error - host)^2.
    """
    parameters = dict(fitted.profile.parameters)
    host = [name for name in parameters if name.startswith("host.")]
    variances = dict.fromkeys(host, 0.0)
    for moved in _moved(fitted.profile):
        found = fitter(replace(fitted, profile=moved), runs).profile.parameters
        for name in host:
            variances[name] += (found[name].value - parameters[name].value) ** 2
    for name in host:
        own = parameters[name].standard_error
        if own is not None:
            total = float(np.sqrt(own**2 + variances[name]))
            parameters[name] = replace(parameters[name], standard_error=total)
    return replace(fitted, profile=replace(fitted.profile, parameters=parameters))


def _moved(profile: Profile) -> Iterator[Profile]:
    """The profile with one kernel parameter, or one point of a curve, higher by its error."""
    for name, kernel in profile.parameters.items():
        if not name.startswith("host.") and kernel.standard_error:
            yield with_values(profile, {name: kernel.value + kernel.standard_error})
    for name, curve in profile.curves.items():
        for index, error in enumerate(curve.standard_errors):
            values = list(curve.values)
            values[index] += error
            moved = replace(curve, values=tuple(values))
            yield replace(profile, curves={**profile.curves, name: moved})


def _fit(fitted: Fitted, runs: Sequence[Runs]) -> Fit:
    costs = [step_costs(entry, fitted) for entry in runs]
    kinds = [kind for kind in _ROOFS_SPREAD if any(kind in cost.roofs_s for cost in costs)]
    unknowns = [Unknown(name, 1e-5, 0.0, _LIMITS[name]) for name in host_parameters(fitted)]
    unknowns += [_near_one(f"{kind}.scale", fitted.doubt * _ROOFS_SPREAD[kind]) for kind in kinds]
    unknowns += [
        _near_one(f"{kind}.fixed_scale", fitted.doubt * _FIXED_SPREAD) for kind in (*kinds, _SMALL)
    ]

    def model(values: Mapping[str, float]) -> Array:
        return np.concatenate([cost.step_s(fitted.profile, values) for cost in costs])

    measured = [entry.measured_s for entry in runs]
    sample = Sample(np.concatenate(measured), clusters=clusters(measured, unknowns))
    return fit(model, unknowns, sample)


def _near_one(name: str, spread: float) -> Unknown:
    return Unknown(name, 1.0, 1e-3, 1e3, prior_sd=spread)


_SMALL = "elementwise"
_ROOFS_SPREAD = {"gemm": 0.15, "experts": 0.2, "attention": 0.2}
_FIXED_SPREAD = 0.4
"""How far kernels in a step are from kernels alone, as a standard deviation of the logarithm.

Judged from CPUs, where a step finds code and small data evicted that a benchmark's loop keeps:
products within 15 %, fixed costs within half. On a quiet machine decode runs refine what the kernels
said; kernels that were disturbed are believed less, and the runs decide.
"""


@dataclass(frozen=True)
class StepCosts:
    """Seconds of a step by what a profile can scale: roofs and fixed costs by kind, and the rest."""

    work: Pass
    launches: float
    roofs_s: Mapping[str, Array]
    fixed_s: Mapping[str, Array]
    rest_s: Array

    def step_s(self, profile: Profile, values: Mapping[str, float]) -> Array:
        """The step with those scales and host parameters: what `forecast_s` says, much faster."""
        device_s = self.rest_s
        for kind, seconds in self.roofs_s.items():
            device_s = device_s + values.get(f"{kind}.scale", 1.0) * seconds
        for kind, seconds in self.fixed_s.items():
            device_s = device_s + values.get(f"{kind}.fixed_scale", 1.0) * seconds
        trial = with_values(profile, values)
        return device_s + host_time(self.work, trial, device_s, self.launches)


def step_costs(runs: Runs, fitted: Fitted) -> StepCosts:
    """Split a step by taking each kind's roofs, then its fixed costs, away: it is linear in both."""
    kinds = (*_ROOFS_SPREAD, _SMALL)
    bare = with_values(fitted.profile, dict.fromkeys(_LIMITS, 0.0))

    def times(name: str, value: float) -> Forecast:
        trial = with_values(bare, {f"{kind}.{name}": value for kind in kinds})
        return forecast_pass(runs.work, fitted.device, trial)

    whole, roofless, unfixed = times("scale", 1.0), times("scale", 0.0), times("fixed_scale", 0.0)
    shape = runs.work.workload.shape
    roofs: dict[str, Array] = {}
    fixed: dict[str, Array] = {}
    for index, operator in enumerate(whole.operators):
        if operator.kind in kinds:
            total = whole.times[index].total_s
            for parts, other in ((roofs, roofless), (fixed, unfixed)):
                part = np.broadcast_to(total - other.times[index].total_s, shape)
                parts[operator.kind] = parts.get(operator.kind, np.zeros(shape)) + part
    rest = whole.step_time_s - sum(roofs.values()) - sum(fixed.values())
    launches = sum(operator.launches for operator in whole.operators)
    return StepCosts(runs.work, launches, roofs, fixed, rest)
