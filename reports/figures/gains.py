"""Gains of a change: what was measured, what it makes available, what it can bring at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, place

_HEIGHT = 0.5
_ROOM = 1.35
"""How far the axis reaches beyond the largest gain."""


@dataclass(frozen=True, slots=True)
class GainBar:
    """One point before and after, as fractions: measured with its noise, and what is possible.

    `available` is what the forecast expects (None: it can't say), `possible` what physics allows.
    """

    name: str
    gain: float
    low: float
    high: float
    available: float | None
    possible: float


def draw(axes: Axes, bars: Sequence[GainBar]) -> None:
    """A row a point: the possible gain a bar, the available one a tick, the measured one a dot."""
    ends = [
        value for bar in bars for value in (bar.high, bar.low, bar.possible, bar.available or 0.0)
    ]
    known = [value for value in ends if math.isfinite(value)]
    low, high = min(0.0, *known), max(0.02, *known)
    axes.set_xlim(low * _ROOM - 0.02 * (high - low), high * _ROOM)
    axes.set_ylim(len(bars) - 0.4, -0.9)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:+.0f} %" if x else "0"))
    axes.set_xlabel("gain of tokens/s per user")
    axes.axvline(0.0, color=style.QUIET, lw=0.9, zorder=1)
    for row, bar in enumerate(bars):
        _row(axes, row, bar)
    clearest = max(range(len(bars)), key=lambda row: _clearance(axes, bars[row]))
    place(axes, _labels(axes, bars[clearest], clearest))


def _row(axes: Axes, row: int, bar: GainBar) -> None:
    end = _reach(axes, bar)
    axes.barh(row, end, _HEIGHT, color=style.SKY, alpha=0.45, lw=0, zorder=1)
    if bar.available is not None:
        at = [bar.available] * 2
        axes.plot(at, [row - _HEIGHT / 2, row + _HEIGHT / 2], color=style.BLUE, lw=2.0, zorder=3)
    axes.plot([bar.low, bar.high], [row, row], color=style.INK, lw=1.4, zorder=4)
    axes.plot([bar.gain], [row], "o", color=style.INK, ms=6, zorder=5)


def _marks(axes: Axes, bar: GainBar) -> list[float]:
    return [bar.gain, _reach(axes, bar), *([] if bar.available is None else [bar.available])]


def _clearance(axes: Axes, bar: GainBar) -> float:
    """How far apart the two closest marks of a row are."""
    marks = sorted(_marks(axes, bar))
    return min(right - left for left, right in pairwise(marks))


def _labels(axes: Axes, bar: GainBar, row: int) -> list[Label]:
    """The marks of one row named."""
    top = row - _HEIGHT / 2
    named = [Label("measured", bar.gain, row, style.INK, weight="bold")]
    named.append(Label("at most", _reach(axes, bar), top, style.QUIET))
    if bar.available is not None:
        named.append(Label("available", bar.available, top, style.BLUE))
    return named


def _reach(axes: Axes, bar: GainBar) -> float:
    """Where a bar ends: at the edge for a gain without bound."""
    return min(bar.possible, axes.get_xlim()[1])
