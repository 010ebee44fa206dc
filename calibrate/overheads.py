"""What a step costs beyond its kernels: fitted to real decode runs, the kernels already known."""

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
    """Add the host's parameters to a profile that knows its kernels."""
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


def _step_s(bare: Forecast, profile: Profile) -> Array:
    """A step whose kernels are known already, with a profile's host parameters."""
    launches = sum(operator.launches for operator in bare.operators)
    return bare.step_time_s + host_time(bare.work, profile, bare.step_time_s, launches)


def _fit(fitted: Fitted, runs: Sequence[Runs]) -> Fit:
    unknowns = [Unknown(name, 1e-5, 0.0, _LIMITS[name]) for name in host_parameters(fitted)]
    bare = with_values(fitted.profile, dict.fromkeys(_LIMITS, 0.0))
    forecasts = [forecast_pass(entry.work, fitted.device, bare) for entry in runs]

    def model(values: Mapping[str, float]) -> Array:
        profile = with_values(fitted.profile, values)
        return np.concatenate([_step_s(known, profile) for known in forecasts])

    measured = [entry.measured_s for entry in runs]
    sample = Sample(np.concatenate(measured), clusters=clusters(measured, unknowns))
    return fit(model, unknowns, sample)
