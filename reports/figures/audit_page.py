"""Figures of audits: where the time went, how far forecasts are off, what a change brought."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from roofcast.calibrate.audit.audit import Audited
from roofcast.calibrate.audit.before_after import Gain
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import Band
from roofcast.reports import audit_rows, figure_data, words
from roofcast.reports.figure_data import Comparison
from roofcast.reports.figures import accuracy, gains, roofline, style, waterfall
from roofcast.reports.figures.gains import GainBar
from roofcast.reports.figures.labels import Label, place
from roofcast.reports.figures.sheet import save, sheet

_MOST_BARS = 14
_FEW = 3
_MOST_STARS = 4


def audit_page(points: Sequence[Audited], stem: Path) -> list[Path]:
    """`audit_figure` in files."""
    return save(audit_figure(points), stem)


def audit_figure(points: Sequence[Audited]) -> Figure:
    """One point: its waterfall. Several: a bar each, and the residuals of all beside them.

    InputError where no point could be split.
    """
    bars = audit_rows.bars(points)
    if not bars:
        raise InputError("nothing to draw: no point has a measured step and a known batch")
    with style.applied():
        if len(bars) == 1:
            figure, (axes,) = sheet(
                "Where the time of a step went",
                _about(points, bars[0].name),
                left_in=1.35,
                size_in=(7.2, 3.6),
            )
            waterfall.draw(axes, bars[0])
            return figure
        height = 2.2 + 0.34 * min(len(bars), _MOST_BARS)
        panels = 2 if len(bars) > _FEW else 1
        figure, panel = sheet(
            "Where the time went, measured and forecast",
            _about(points),
            panels=panels,
            left_in=1.75,
            size_in=(6.4 * panels, max(height, 3.6)),
        )
        waterfall.stack(panel[0], _spread(bars))
        if panels == 2:
            groups = comparisons(points)
            accuracy.residuals(panel[1], groups, _band(points))
            if len(groups) > 1:
                place(panel[1], _names(groups))
        return figure


def measured_roofline(points: Sequence[Audited]) -> Figure:
    """Operators of the points' steps on the roofline, and the steps as they were measured.

    The points share a set-up, and their batch and step are known.
    """
    known = [
        (each.placed.setup, each.cost, each.step.step_s)
        for each in points
        if each.placed is not None and each.cost is not None and each.step is not None
    ]
    few = [known[i] for i in _evenly(len(known), _MOST_STARS)]
    where, context = few[0][0], round(statistics.median(cost.context for _, cost, _ in few))
    batches = np.unique([max(round(cost.batch), 1) for _, cost, _ in few])
    steps = [
        figure_data.measured_step(
            where.decode(max(round(cost.batch), 1), round(cost.context)), step_s
        )
        for _, cost, step_s in few
    ]
    with style.applied():
        figure, (axes,) = sheet(
            "Measured steps on the roofline", _about(points, f"context about {context:,}")
        )
        data = figure_data.roofline(where.decode(batches, context))
        roofline.draw(axes, replace(data, measured=tuple(steps)))
        return figure


def gains_page(found: Sequence[Gain], stem: Path) -> list[Path]:
    """`gains_figure` in files."""
    return save(gains_figure(found), stem)


def gains_figure(found: Sequence[Gain]) -> Figure:
    """Before and after a change: measured gains beside what the change can bring."""
    bars = [
        GainBar(
            audit_rows.label(each.before),
            each.gain,
            each.gain_low,
            each.gain_high,
            each.available,
            each.possible,
        )
        for each in found
    ]
    shown = [bars[index] for index in _evenly(len(bars), _MOST_BARS)]
    size = (7.2, max(2.6, 1.9 + 0.42 * len(shown)))
    with style.applied():
        about = _about([each.before for each in found])
        figure, (axes,) = sheet("What the change brought", about, left_in=1.75, size_in=size)
        gains.draw(axes, shown)
        return figure


def comparisons(points: Sequence[Audited]) -> tuple[Comparison, ...]:
    """Measured against forecast steps, prompts of others included, a group a file."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        split = point.waterfall
        if split is not None:
            measured = sum(split.values())
            expected = measured - split["unexplained"]
            groups.setdefault(Path(point.record.file).name, []).append((measured, expected))
    return tuple(
        Comparison(name, np.array([a for a, _ in found]), np.array([b for _, b in found]), True)
        for name, found in groups.items()
    )


def _names(groups: Sequence[Comparison]) -> list[Label]:
    """The name of each file at its point that is farthest from its forecast."""
    factor, _ = style.time_unit(max(float(group.measured_s.max()) for group in groups))
    labels = []
    for group, colour in zip(groups, cycle(style.SERIES), strict=False):
        miss = 100 * (group.forecast_s / group.measured_s - 1)
        worst = int(np.argmax(np.abs(miss)))
        x, y = float(group.measured_s[worst]), float(miss[worst])
        labels.append(Label(group.name, factor * x, y, colour, weight="bold"))
    return labels


def _spread(bars: Sequence[audit_rows.AuditBar]) -> list[audit_rows.AuditBar]:
    """As many bars as there is room for, from first to last."""
    if len(bars) <= _MOST_BARS:
        return list(bars)
    return [bars[index] for index in _evenly(len(bars), _MOST_BARS)]


def _evenly(count: int, most: int) -> list[int]:
    """At most so many indices, from the first to the last."""
    picked = np.linspace(0, count - 1, min(count, most)).round().astype(int)
    return [int(index) for index in np.unique(picked)]


def _band(points: Sequence[Audited]) -> Band | None:
    """The interval of the one profile that all points were held against."""
    found = [each.placed.setup.profile for each in points if each.placed is not None]
    alike = len({id(profile) for profile in found}) == 1
    return found[0].band if alike else None


def _about(points: Sequence[Audited], *more: str) -> str:
    setups = [each.placed.setup for each in points if each.placed is not None]
    where = setups[0]
    if any(other is not where for other in setups):
        return ", ".join([f"{len(points):,} points", *more])
    parts = [f"{where.architecture.name} on {where.device.name}", words.layout(where.parallelism)]
    return ", ".join([*parts, *more, f"profile {where.profile.name}"])
