"""What figures show, as plain values taken from forecasts. Nothing here knows matplotlib."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.simulator.insight import largest_batch, largest_context
from roofcast.simulator.prediction import CAUSES, Forecast
from roofcast.simulator.roofline import Roofs

if TYPE_CHECKING:
    from roofcast.calibrate.calibration import Calibration

Array = NDArray[np.float64]

# A marker is about a fourteenth of a decade wide in a figure of the usual size.
_MARKER_DECADES = 0.07
_MOST_STEPS = 200

_SHOWN_DTYPES = ("bf16", "fp16", "fp8", "fp4", "fp32", "int8")
_ALL = {
    "gemm": "matrix products",
    "experts": "expert products",
    "attention": "attention",
    "state": "recurrent mixers",
}


@dataclass(frozen=True, slots=True)
class Roof:
    """One ceiling: FLOP/s or bytes/s, `measured` or from the datasheet."""

    name: str
    value: float
    measured: bool


@dataclass(frozen=True, slots=True)
class OperatorPath:
    """One operator (or several that coincide) at growing batches: where it sits on the roofline."""

    name: str
    kind: str
    batch: Array
    intensity_flop_per_byte: Array
    flops_per_s: Array


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A whole step as it was measured, per device of a replica."""

    batch: float
    intensity_flop_per_byte: float
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """The roofs of one device and the operators of a step on it, per device of a replica.

    `ridge_flop_per_byte` is that of `dtype`, the one most FLOPs of the step run in.
    """

    memory: tuple[Roof, ...]
    compute: tuple[Roof, ...]
    dtype: str
    ridge_flop_per_byte: float
    paths: tuple[OperatorPath, ...]
    measured: tuple[MeasuredStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One curve over batch or context. Beyond `limit` the cache does not fit in memory."""

    name: str
    x: Array
    y: Array
    limit: float
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One step split by cause, in seconds."""

    name: str
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Growth:
    """The steps of one reply split by cause, in seconds, over the tokens in the cache."""

    context: Array
    seconds: dict[str, Array]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Measured against forecast step times of one group of runs."""

    name: str
    measured_s: Array
    forecast_s: Array
    held_out: bool


def roofline(forecast: Forecast) -> Roofline:
    """Roofs and operators of a forecast whose points differ in batch only (a 1-D array)."""
    batch = np.ravel(forecast.batch)
    dtype, stored = _main_product(forecast)
    roofs = Roofs(forecast.device, forecast.profile)
    peak = roofs.peak(dtype)[1]
    return Roofline(
        memory=tuple(_memory_roofs(forecast.device, forecast.profile, stored)),
        compute=tuple(_compute_roofs(forecast.device, forecast.profile, dtype)),
        dtype=dtype,
        ridge_flop_per_byte=peak / roofs.bandwidth_bytes_per_s,
        paths=tuple(_merged(list(_paths(forecast, batch)))),
    )


def measured_step(step: Forecast, measured_s: float) -> MeasuredStep:
    """Where the measured time puts a step of one point: its FLOPs and bytes are the forecast's."""
    return MeasuredStep(
        float(step.batch),
        float(step.arithmetic_intensity),
        float(step.flops) / step.devices / measured_s,
    )


def tokens_by_batch(forecast: Forecast, name: str) -> Line:
    """Tokens/s over a 1-D array of batches."""
    return Line(
        name=name,
        x=np.ravel(forecast.batch),
        y=np.ravel(forecast.tokens_per_s),
        limit=float(largest_batch(forecast)),
        low=_known(forecast.batch / forecast.step_time_high_s),
        high=_known(forecast.batch / forecast.step_time_low_s),
    )


def per_device(line: Line, devices: int) -> Line:
    """The same curve per device of a replica."""
    low = None if line.low is None else line.low / devices
    high = None if line.high is None else line.high / devices
    return replace(line, y=line.y / devices, low=low, high=high)


def latency_by_context(forecast: Forecast, name: str) -> Line:
    """Step time in seconds over a 1-D array of contexts."""
    return Line(
        name=name,
        x=np.ravel(forecast.context),
        y=np.ravel(forecast.step_time_s),
        limit=float(largest_context(forecast)),
        low=_known(forecast.step_time_low_s),
        high=_known(forecast.step_time_high_s),
    )


def breakdown(forecast: Forecast, names: Iterable[str]) -> tuple[Bar, ...]:
    """A bar per point, in order."""
    parts = {cause: _flat(forecast.causes[cause], forecast) for cause in CAUSES}
    return tuple(
        Bar(name, {cause: float(parts[cause][index]) for cause in CAUSES})
        for index, name in enumerate(names)
    )


def comparisons(calibration: Calibration) -> tuple[Comparison, ...]:
    """Every decode run of a calibration once, forecast by a fit that had not seen its shape.

    Held-out shapes come first. Without such a scheme the result is empty.
    """
    found: dict[tuple[str, bool], Comparison] = {}
    for judged in calibration.judged:
        for runs, ratios in zip(judged.runs, judged.log_ratios, strict=True):
            key = (runs.shape, runs.held_out)
            forecast_s = runs.measured_s / np.exp(ratios)
            found.setdefault(
                key, Comparison(runs.shape, runs.measured_s, forecast_s, runs.held_out)
            )
    return tuple(sorted(found.values(), key=lambda group: not group.held_out))


def growth(steps: Forecast) -> Growth:
    """The decode steps of a reply, one point a step, or as many as an eye can tell apart."""
    size = steps.step_time_s.size
    kept = np.unique(np.linspace(0, size - 1, min(size, _MOST_STEPS)).round().astype(int))
    causes = {cause: _flat(steps.causes[cause], steps)[kept] for cause in CAUSES}
    return Growth(np.ravel(steps.context)[kept], causes)


def _flat(values: Array, forecast: Forecast) -> Array:
    return np.ravel(np.broadcast_to(values, forecast.step_time_s.shape))


def _known(values: Array) -> Array | None:
    flat = np.ravel(values)
    return None if np.all(np.isnan(flat)) else flat


def _main_product(forecast: Forecast) -> tuple[str, str]:
    """The dtype, as the device runs it, and the weight format of most matrix FLOPs."""
    roofs = Roofs(forecast.device, forecast.profile)
    totals: dict[tuple[str, str], float] = {}
    for operator in forecast.operators:
        flops = float(np.sum(operator.flops))
        if flops and np.any(operator.weight_bytes):
            key = (roofs.peak(operator.dtype)[0], operator.format)
            totals[key] = totals.get(key, 0.0) + flops
    return max(totals, key=lambda key: totals[key])


def _memory_roofs(device: Accelerator, profile: Profile, stored: str) -> Iterable[Roof]:
    bandwidth = Roofs(device, profile).bandwidth_bytes_per_s
    on_datasheet = device.memory_bandwidth_bytes_per_s is not None
    yield Roof("memory" if on_datasheet else "memory, measured", bandwidth, not on_datasheet)
    reached = profile.value("gemm.bandwidth_efficiency", 1.0, stored)
    if on_datasheet and reached != 1.0:
        yield Roof("reached", reached * bandwidth, measured=True)


def _compute_roofs(device: Accelerator, profile: Profile, dtype: str) -> Iterable[Roof]:
    """One roof for each distinct peak; dtypes of equal peak share it. `dtype`'s reached rate too."""
    sheet = dict(device.peak_flops_per_s)
    measured = {
        key.removeprefix("peak_flops_per_s."): value
        for key, value in profile.roofs.items()
        if key.startswith("peak_flops_per_s.")
    }
    known = {name: (sheet.get(name) or measured[name]) for name in {**sheet, **measured}}
    by_peak: dict[float, list[str]] = {}
    for name, peak in known.items():
        if name == dtype or name in _SHOWN_DTYPES:
            by_peak.setdefault(peak, []).append(name)
    for peak, names in sorted(by_peak.items()):
        measured_only = names[0] not in sheet
        text = ", ".join([*names, "measured"] if measured_only else names)
        yield Roof(text, peak, measured_only)
    reached = profile.value("gemm.compute_efficiency", 1.0, dtype)
    if dtype in sheet and reached != 1.0:
        yield Roof(f"{dtype} reached", reached * known[dtype], measured=True)


def _paths(forecast: Forecast, batch: Array) -> Iterable[OperatorPath]:
    pairs = zip(forecast.operators, forecast.times, strict=True)
    largest_first = sorted(pairs, key=lambda pair: -float(np.max(pair[0].flops)))
    for operator, time in largest_first:
        if np.any(operator.flops) and np.any(operator.bytes):
            yield OperatorPath(
                name=readable(operator.name),
                kind=operator.kind,
                batch=batch,
                intensity_flop_per_byte=_over(operator.flops / operator.bytes, batch),
                flops_per_s=_over(operator.flops / time.total_s, batch),
            )


def _over(values: Array, batch: Array) -> Array:
    return np.array(np.broadcast_to(np.ravel(values), batch.shape), dtype=float)


def _merged(paths: list[OperatorPath]) -> list[OperatorPath]:
    """Operators of one kind that no eye could tell apart become one, named after all of them."""
    groups: list[list[OperatorPath]] = []
    for path in paths:
        alike = (group for group in groups if _coincide(group[0], path))
        group = next(alike, None)
        if group is None:
            groups.append([path])
        else:
            group.append(path)
    return [_joined(group, paths) for group in groups]


def _joined(group: list[OperatorPath], paths: list[OperatorPath]) -> OperatorPath:
    """The path of the first, under the names of all, or that of the kind where nothing is left out."""
    kind = group[0].kind
    complete = len(group) > 1 and len(group) == sum(path.kind == kind for path in paths)
    name = f"all {_ALL[kind]}" if complete else ", ".join(path.name for path in group)
    return replace(group[0], name=name)


def _coincide(first: OperatorPath, second: OperatorPath) -> bool:
    if first.kind != second.kind:
        return False
    across = np.log10(first.intensity_flop_per_byte / second.intensity_flop_per_byte)
    up = np.log10(first.flops_per_s / second.flops_per_s)
    return bool(max(np.max(np.abs(across)), np.max(np.abs(up))) < _MARKER_DECADES)


def readable(name: str) -> str:
    """An operator's name as people write it.

    >>> readable("gate_up_proj"), readable("lm_head"), readable("qkv_proj")
    ('gate+up', 'LM head', 'QKV')
    """
    known = {
        "qkv_proj": "QKV",
        "o_proj": "output",
        "gate_up_proj": "gate+up",
        "down_proj": "down",
        "lm_head": "LM head",
        "experts_gate_up": "expert gate+up",
        "experts_down": "expert down",
    }
    return known.get(name, name.removesuffix("_proj").replace("_", " "))
