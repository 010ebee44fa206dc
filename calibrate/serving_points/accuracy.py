"""How accurate serving forecasts are, as data: by scheme, by group, and where they are worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.serving_points.calibration import (
    Calibrated,
    HeldOutRows,
    device_of,
    group_of,
    leave_out,
    model_of,
)
from roofcast.calibrate.serving_points.coverage import intervals
from roofcast.calibrate.serving_points.design import Design
from roofcast.calibrate.serving_points.errors import Errors
from roofcast.calibrate.serving_points.fit import metric_s, si
from roofcast.calibrate.serving_points.forecasts import forecast_cases
from roofcast.calibrate.serving_points.knobs import Panel
from roofcast.calibrate.serving_points.model import predict
from roofcast.calibrate.serving_points.physics import DOUBTFUL, roof_share
from roofcast.calibrate.serving_points.resolve import Case
from roofcast.calibrate.serving_points.terms import TERMS
from roofcast.hardware.profile import ideal
from roofcast.simulator.api import Setup
from roofcast.simulator.serving_costs import BATCHES
from roofcast.simulator.workload import Array

Label = Callable[[Case], str]
_SMALLEST_CELL: Final = 5


@dataclass(frozen=True, slots=True)
class Scheme:
    """Errors of one metric under one way of holding points out."""

    name: str
    metric: str
    errors: Errors


@dataclass(frozen=True, slots=True)
class Cell:
    """One group of held-out points, and what may explain its error."""

    label: str
    errors: Errors
    cause: str = ""


@dataclass(frozen=True)
class FamilyAccuracy:
    """One family: errors by scheme, the first metric's by group, and its worst cells."""

    name: str
    points: int
    engines: tuple[str, ...]
    years: str
    schemes: tuple[Scheme, ...]
    groups: Mapping[str, tuple[Cell, ...]]
    worst: tuple[Cell, ...]


def batch_of(case: Case) -> str:
    """The batch or concurrency of a case as a power-of-four class.

    Classes read 1, 2-4, 5-16, 17-64, 65-256, 257-1024.
    """
    flight = case.point.concurrency or 1.0
    low, high = 0, 1
    while flight > high:
        low, high = high, high * 4
    return str(high) if high == 1 else f"{low + 1}-{high}"


GROUPS: Final[Mapping[str, Label]] = {
    "device": device_of,
    "engine": lambda case: case.setup.profile.engine,
    "model": model_of,
    "batch": batch_of,
}


def accuracy(made: Calibrated, say: Callable[[str], None] = lambda text: None) -> FamilyAccuracy:
    """Judge one family, with groups, models and devices left out, beside the plain roofline."""
    table, family = made.held_out.design, made.fitted.family
    held = {"each model, device and engine left out": made.held_out}
    for name, label in (("each model left out", model_of), ("each device left out", device_of)):
        if len({label(case) for case in table.cases}) > 1:
            held[name] = leave_out(family, table, made.held_out.telling, made.fitted, label)
            say(f"{family.name}: {name}")
    schemes = [
        Scheme(name, metric, _errors(rows.ratios[metric], *_intervals(rows, rows.ratios[metric])))
        for name, rows in held.items()
        for metric in family.metrics
    ]
    schemes += [Scheme("the roofline alone", m, _errors(r)) for m, r in roofline(made).items()]
    ratios = made.held_out.ratios[next(iter(family.metrics))]
    ends = _intervals(made.held_out, ratios)
    return FamilyAccuracy(
        name=family.name,
        points=len(table.cases),
        engines=family.engines,
        years=family.years,
        schemes=tuple(schemes),
        groups={name: tuple(cells(table, ratios, ends, of)) for name, of in GROUPS.items()},
        worst=tuple(worst_cells(made, ratios)),
    )


def roofline(made: Calibrated) -> dict[str, Array]:
    """Log ratios of the same points under roofs alone: full bandwidth and peak, nothing else."""
    table, family = made.held_out.design, made.fitted.family
    setups: dict[int, Setup] = {}
    for case in table.cases:
        own = case.setup
        perfect = replace(ideal(own.device.id), roofs=own.profile.roofs)
        setups.setdefault(id(own), replace(own, profile=perfect, kernels=None))
    cases = [replace(case, setup=setups[id(case.setup)]) for case in table.cases]
    found, _ = forecast_cases(cases)
    return {m: np.log(si(table, m) / metric_s(found, table, m)) for m in family.metrics}


def cells(table: Design, ratios: Array, ends: tuple[Array, Array], label: Label) -> Iterable[Cell]:
    """Errors by group, largest groups first; `ends` are those of the points' intervals."""
    labels = np.array([label(case) for case in table.cases])
    low, high = ends
    counted = sorted(np.unique(labels), key=lambda name: -int((labels == name).sum()))
    for name in counted:
        here = labels == name
        if np.isfinite(ratios[here]).any():
            yield Cell(str(name), _errors(ratios[here], low[here], high[here]))


def worst_cells(made: Calibrated, ratios: Array, most: int = 8) -> Iterable[Cell]:
    """The groups of model, device, engine and weights that are furthest off, with the likely cause."""
    table = made.held_out.design
    labels = np.array([_cell_label(case) for case in table.cases])
    found = []
    for name in np.unique(labels):
        rows = np.flatnonzero((labels == name) & np.isfinite(ratios))
        if rows.size >= _SMALLEST_CELL or (rows.size and np.abs(ratios[rows]).max() > 1.0):
            found.append((float(np.median(np.abs(np.expm1(-ratios[rows])))), str(name), rows))
    for _, name, rows in sorted(found, reverse=True)[:most]:
        yield Cell(name, _errors(ratios[rows]), cause(made, rows, ratios[rows]))


def cause(made: Calibrated, rows: NDArray[np.intp], ratios: Array) -> str:
    """What the residuals of some points point to, in words."""
    table = made.held_out.design
    cases = [table.cases[row] for row in rows]
    used = float(np.median(roof_share(cases)))
    if used > DOUBTFUL:
        return (
            f"takes {used:.0%} of all roofs: prompts cached or shorter, or the layout mislabelled"
        )
    slope = _slope(np.log([case.point.concurrency or 1.0 for case in cases]), ratios)
    parts = _shares(made, rows)
    largest = max(parts, key=lambda name: parts[name])
    trend = ""
    if abs(slope) > 0.08:
        trend = (
            "; forecast falls behind as the batch grows" if slope > 0 else "; too steep in batch"
        )
    return f"{largest} are {parts[largest]:.0%} of its step{trend}"


def _shares(made: Calibrated, rows: Sequence[int] | NDArray[np.intp]) -> dict[str, float]:
    """Share of a decode step by kind of cost, at the batch forecast."""
    table = made.held_out.design
    panel = Panel(made.fitted.family.knobs, table.take(np.asarray(rows)))
    values = {u.name: made.fitted.values.get(u.name, u.start) for u in panel.unknowns()}
    turned = panel.multipliers("decode", values)
    batch = predict(panel, values).batch
    nearest = np.abs(BATCHES[np.newaxis, :] - batch[:, np.newaxis]).argmin(axis=1)
    terms = panel.design.decode[np.arange(len(nearest)), nearest] * turned
    total = terms.sum(axis=0)
    kinds = {"launches": 0.0, "collectives": 0.0, "the host": 0.0}
    for term, seconds in zip(TERMS, total, strict=True):
        if term.endswith(".kernels"):
            kinds["launches"] += seconds
        elif term in ("link", "collectives"):
            kinds["collectives"] += seconds
        elif "." in term:
            kind = {"gemm": "products", "attention": "caches", "state": "states"}.get(
                term.partition(".")[0], term.partition(".")[0]
            )
            kinds[kind] = kinds.get(kind, 0.0) + seconds
        elif term != "launches":
            kinds["the host"] += seconds
    whole = sum(kinds.values()) or 1.0
    return {name: seconds / whole for name, seconds in kinds.items()}


def _slope(x: Array, y: Array) -> float:
    return float(np.polyfit(x, y, 1)[0]) if np.ptp(x) > 0.5 else 0.0


def _cell_label(case: Case) -> str:
    point = case.point
    words = (model_of(case).removesuffix(".json"), case.setup.device.id, point.engine)
    return ", ".join((*words, point.weight_dtype))


def _intervals(held: HeldOutRows, ratios: Array) -> tuple[Array, Array]:
    cases = held.design.cases
    devices, groups = [device_of(case) for case in cases], [group_of(case) for case in cases]
    return intervals(ratios, devices, groups, held.telling)


def _errors(ratios: Array, low: Array | None = None, high: Array | None = None) -> Errors:
    """Errors of log ratios measured / forecast within the ends of their intervals, if given."""
    ends = np.nan if low is None else low, np.nan if high is None else high
    rows = np.stack(np.broadcast_arrays(ratios, *ends), axis=-1)
    known = rows[np.isfinite(ratios)]
    return Errors.of([(1.0, *map(float, np.exp((-x, a - x, b - x)))) for x, a, b in known])
