"""Curves over batch or context, with the memory limit drawn where the cache no longer fits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from roofcast.reports.figure_data import Array, Line
from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, label_ends, place

_PALE = 0.16


def throughput(axes: Axes, lines: Sequence[Line], rate: str = "output tokens/s") -> None:
    """Tokens/s over batch, both logarithmic. Beyond the memory limit a curve is dotted.

    `rate` names what the curves count.
    """
    _frame(axes, lines)
    axes.set_xlabel("batch (sequences decoded together)")
    style.name_y_axis(axes, rate)
    _draw(axes, lines, 1.0, spelled=False)


def latency(axes: Axes, lines: Sequence[Line]) -> None:
    """Step time, which is what a user waits for each token, over context, both logarithmic."""
    _frame(axes, lines)
    factor, unit = style.time_unit(max(float(line.y.max()) for line in lines))
    axes.set_xlabel("context (tokens in the cache of each sequence)")
    style.name_y_axis(axes, f"{unit} per token")
    _draw(axes, lines, factor, spelled=True)


def _frame(axes: Axes, lines: Sequence[Line]) -> None:
    x = np.unique(np.concatenate([line.x for line in lines]))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(x[0] / 1.08, x[-1])


def _draw(axes: Axes, lines: Sequence[Line], factor: float, *, spelled: bool) -> None:
    values = np.concatenate([line.y for line in lines]) * factor
    low, high = values.min() / 1.4, values.max() * 1.5
    axes.set_ylim(low, high)
    style.number_ticks(axes.yaxis, low, high)
    looks = zip(lines, cycle(style.SERIES), cycle(style.SERIES_MARKERS), strict=False)
    label_ends(axes, [_line(axes, line, factor, *look) for line, *look in looks])
    powers = np.unique(np.concatenate([line.x[np.log2(line.x) % 1 == 0] for line in lines]))
    style.power_ticks(axes, powers.tolist(), spelled)
    _limits(axes, lines, factor)


def _line(axes: Axes, line: Line, factor: float, colour: str, marker: str) -> Label:
    """One curve: solid with its markers while it fits, dotted beyond; its label's place returned."""
    fits = line.x <= line.limit
    shown = _cut(line, line.limit)
    if shown.low is not None and shown.high is not None:
        band = (shown.low * factor, shown.high * factor)
        axes.fill_between(shown.x, *band, color=colour, alpha=_PALE, linewidth=0)
    axes.plot(shown.x, shown.y * factor, color=colour, zorder=3)
    axes.plot(
        line.x[fits], line.y[fits] * factor, color=colour, marker=marker, ls="", ms=4, zorder=3
    )
    if not np.all(fits):
        x = np.append(shown.x[-1:], line.x[~fits])
        y = np.append(shown.y[-1:], line.y[~fits])
        axes.plot(x, y * factor, color=colour, linestyle=":", linewidth=1.1, zorder=2)
    return Label(line.name, float(line.x[-1]), float(line.y[-1]) * factor, colour, weight="bold")


def _cut(line: Line, limit: float) -> Line:
    """The part of a curve up to `limit`, with a point of its own there where it lies inside."""
    x = line.x[line.x <= limit]
    if x.size and limit < line.x[-1]:
        x = np.append(x, limit)

    def at(values: Array) -> Array:
        return np.exp(np.interp(np.log(x), np.log(line.x), np.log(values)))

    low = None if line.low is None else at(line.low)
    high = None if line.high is None else at(line.high)
    return Line(line.name, x, at(line.y), limit, low, high)


def _limits(axes: Axes, lines: Sequence[Line], factor: float) -> None:
    """A bar across each curve where memory is full, with the number; the first one says so."""
    stopping = [line for line in lines if line.x[0] <= line.limit < line.x[-1]]
    labels = []
    for index, line in enumerate(stopping):
        x, y = line.limit, float(_cut(line, line.limit).y[-1]) * factor
        axes.plot([x], [y], marker="|", ls="", ms=12, mew=1.6, color=style.INK, zorder=4)
        number = f"{x:,.0f}"
        labels.append(
            Label(f"memory full at {number}" if index == 0 else number, x, y, scale=style.SMALL)
        )
    place(axes, labels)
