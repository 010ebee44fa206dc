"""Calibrations as tables: what was reached, what the fit misses, and what differs between two."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from roofcast.calibrate.comparison import Comparison, KindChange, ParameterChange
from roofcast.calibrate.residuals import Residual
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.hardware.published import published
from roofcast.reports import profile_text, units, words
from roofcast.reports.tables import Column, Table
from roofcast.simulator.workload import Array

_PEAK, _MEMORY = "peak_flops_per_s", "memory_bandwidth_bytes_per_s"


def reached(profile: Profile, device: Accelerator) -> Table:
    """Measured roofs beside the datasheet's, and the highest that others published."""
    names = list(profile.roofs)
    values = [profile.roofs[name] for name in names]
    sheet = [_datasheet(device, name) for name in names]
    others = [_published(device, name) for name in names]
    shares = [
        units.percent(value / known) if known else units.UNKNOWN
        for value, known in zip(values, sheet, strict=True)
    ]
    return Table(
        (
            Column("sustained", [profile_text.roof_name(name) for name in names], right=False),
            Column("measured", [profile_text.roof_value(n, v) for n, v in profile.roofs.items()]),
            Column("datasheet", [_known(n, v) for n, v in zip(names, sheet, strict=True)]),
            Column("share", shares),
            Column("published", [_known(n, v) for n, v in zip(names, others, strict=True)]),
        )
    )


def _datasheet(device: Accelerator, roof: str) -> float | None:
    base, _, dtype = roof.partition(".")
    if base == _PEAK:
        return device.peak_flops_per_s.get(dtype)
    return device.memory_bandwidth_bytes_per_s if base == _MEMORY else None


def _published(device: Accelerator, roof: str) -> float | None:
    base, _, dtype = roof.partition(".")
    wanted = {_PEAK: "gemm_flops_per_s", _MEMORY: "memory_bytes_per_s"}.get(base)
    found = [
        each.value
        for each in published(device.id)
        if each.quantity == wanted and each.dtype in (None, dtype or None) and not each.caution
    ]
    return max(found, default=None)


def _known(roof: str, value: float | None) -> str:
    return units.UNKNOWN if value is None else profile_text.roof_value(roof, value)


def residuals(found: Sequence[Residual]) -> Table:
    """Errors of the profile on the samples it was fitted to, a row a kind."""
    groups = {kind: _errors(found, kind) for kind in dict.fromkeys(each.kind for each in found)}
    return Table(
        (
            Column("its own samples", list(groups), right=False),
            Column("tasks", [f"{errors.size}" for errors in groups.values()]),
            Column(
                "median error", [units.percent(float(np.median(abs(e)))) for e in groups.values()]
            ),
            Column(
                "p90", [units.percent(float(np.quantile(abs(e), 0.9))) for e in groups.values()]
            ),
            Column("bias", [words.signed(float(np.median(e))) for e in groups.values()]),
        )
    )


def _errors(found: Sequence[Residual], kind: str) -> Array:
    """forecast / measured - 1 of one kind."""
    return np.array([math.expm1(-each.log_ratio) for each in found if each.kind == kind])


def parameter_changes(changes: Sequence[ParameterChange]) -> Table:
    """Values before and after, and whether noise explains the difference."""
    return Table(
        (
            Column("parameter", [each.name for each in changes], right=False),
            Column("before", [f"{each.before:.4g}" for each in changes]),
            Column("after", [f"{each.after:.4g}" for each in changes]),
            Column("change", [_ratio(each.ratio) for each in changes]),
            Column("in s.e.", [_deviation(each.deviation) for each in changes]),
            Column("", [_changed(each.changed) for each in changes], right=False),
        )
    )


def kind_changes(changes: Sequence[KindChange]) -> Table:
    """Times of the same tasks, after over before."""
    return Table(
        (
            Column("same tasks", [each.kind for each in changes], right=False),
            Column("tasks", [f"{each.tasks}" for each in changes]),
            Column("time", [_ratio(each.ratio) for each in changes]),
            Column("95 % of it", [f"{_ratio(e.low)} to {_ratio(e.high)}" for e in changes]),
            Column("", [_changed(each.changed) for each in changes], right=False),
        )
    )


def condition_changes(found: Comparison) -> Table:
    """Conditions that differ."""
    rows = found.conditions
    return Table(
        (
            Column("condition", [name for name, _, _ in rows], right=False),
            Column("before", [_shown(old) for _, old, _ in rows], right=False),
            Column("after", [_shown(new) for _, _, new in rows], right=False),
        )
    )


def verdict(found: Comparison) -> str:
    """What changed beyond noise, in one sentence.

    Samples judge where there are any: they need no model. Parameters of correlated effects may trade.
    """
    slower = [_moved(each) for each in found.kinds if each.changed]
    moved = [each.name for each in found.parameters if each.changed]
    said = []
    if slower:
        said.append(f"Beyond noise: {', '.join(slower)}.")
    elif found.kinds:
        said.append("No kind of measurement differs beyond its noise.")
    if moved:
        said.append(f"Parameters that moved by over three standard errors: {', '.join(moved)}.")
    elif found.parameters:
        said.append("All parameters agree within three standard errors.")
    return " ".join(said) or "The two have nothing in common that could be compared."


def _moved(change: KindChange) -> str:
    percent = units.percent(abs(change.ratio - 1.0))
    return f"{change.kind} takes {percent} {'more' if change.ratio > 1.0 else 'less'} time"


_MOST_TIMES = 100.0
"""Beyond it one of the two values is all but nothing, and a percentage says nothing."""


def _ratio(value: float) -> str:
    known = 1.0 / _MOST_TIMES < value < _MOST_TIMES
    return words.signed(value - 1.0) if known else units.UNKNOWN


def _deviation(value: float) -> str:
    return units.UNKNOWN if math.isnan(value) else f"{value:+.1f}"


def _changed(changed: bool | None) -> str:
    return "not judged" if changed is None else "changed" if changed else "within noise"


def _shown(value: object) -> str:
    if value is None:
        return units.UNKNOWN
    return f"{value:.4g}" if isinstance(value, float) else str(value)
