"""The figure of an audit: where the time went, and how far the points are from their forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

from roofcast.calibrate.audit.audit import Audited
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import Band
from roofcast.reports import audit_rows, words
from roofcast.reports.figure_data import Comparison
from roofcast.reports.figures import accuracy, style, waterfall
from roofcast.reports.figures.labels import Label, place
from roofcast.reports.figures.sheet import save, sheet

_MOST_BARS = 14
_FEW = 3


def audit_page(points: Sequence[Audited], stem: Path) -> list[Path]:
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
        else:
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
        return save(figure, stem)


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
    chosen = np.unique(np.linspace(0, len(bars) - 1, _MOST_BARS).round().astype(int))
    return [bars[index] for index in chosen]


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
