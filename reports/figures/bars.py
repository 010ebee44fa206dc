"""Where a step's time goes: one bar a step, split by cause."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofcast.reports import units
from roofcast.reports.figure_data import Bar
from roofcast.reports.figures import key, style
from roofcast.reports.figures.geometry import pixels_per_point
from roofcast.reports.figures.labels import text_size

_HEIGHT = 0.62
_LEAST_NAMED = 0.004
_ROW = 0.36  # of the key, in bars
Segment = tuple[str, float, float]


def draw(axes: Axes, bars: Sequence[Bar]) -> None:
    """Horizontal bars from top to bottom, each with its total; causes are named above the first."""
    longest_s = max(sum(bar.seconds.values()) for bar in bars)
    factor, unit = style.time_unit(longest_s)
    axes.set_xlim(0, longest_s * factor * 1.14)
    named = key.rows(axes, [style.CAUSES[cause] for cause in _used(bars)])
    axes.set_ylim(len(bars) - 0.45, -0.95 - _ROW * (len(named) - 1))
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(f"step time ({unit})")
    for row, bar in enumerate(bars):
        _bar(axes, row, bar, factor)
    for row, marks in enumerate(reversed(named)):
        x = 0.0
        for mark in marks:
            x = key.swatch(axes, mark, x, -0.72 - _ROW * row, 0.24)


def _used(bars: Sequence[Bar]) -> list[str]:
    """Causes that are at least a sliver of some bar."""
    return [
        cause
        for cause in style.CAUSES
        if any(bar.seconds.get(cause, 0) > _LEAST_NAMED * sum(bar.seconds.values()) for bar in bars)
    ]


def _bar(axes: Axes, row: int, bar: Bar, factor: float) -> None:
    start = 0.0
    total = sum(bar.seconds.values())
    for cause, mark in style.CAUSES.items():
        width = bar.seconds.get(cause, 0.0) * factor
        if width <= 0:
            continue
        axes.barh(
            row,
            width,
            _HEIGHT,
            start,
            color=mark.colour,
            edgecolor="white",
            linewidth=0.5,
            hatch=mark.hatch,
        )
        _share(axes, row, start, width, width / (total * factor))
        start += width
    axes.text(
        start, row, f"  {units.seconds(total)}", va="center", ha="left", fontsize=style.points(1.0)
    )


def _share(axes: Axes, row: int, start: float, width: float, share: float) -> None:
    """The share of the step inside its segment, where it fits."""
    text = units.percent(share)
    point = pixels_per_point(axes)
    left, right = axes.transData.transform([(start, row), (start + width, row)])[:, 0]
    if text_size(axes, text, style.SMALL)[0] + 8 * point > right - left:
        return
    plate = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.text(
        start + width / 2,
        row,
        text,
        ha="center",
        va="center",
        fontsize=style.points(style.SMALL),
        bbox=plate,
    )
