"""Keys of bars: swatches with their words in rows above the first bar."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from roofcast.reports.figures import style
from roofcast.reports.figures.geometry import pixels_per_point
from roofcast.reports.figures.labels import text_size
from roofcast.reports.figures.style import Mark

GAP_PT = 12.0
"""Between a swatch and its word, and between entries."""


def rows(axes: Axes, marks: Sequence[Mark]) -> list[list[Mark]]:
    """The marks in as many rows as the width of the axes needs."""
    room = float(axes.get_window_extent().width)
    found: list[list[Mark]] = [[]]
    used = 0.0
    for mark in marks:
        size = _width(axes, mark)
        if found[-1] and used + size - GAP_PT * pixels_per_point(axes) > room:
            found.append([])
            used = 0.0
        found[-1].append(mark)
        used += size
    return found


def swatch(axes: Axes, mark: Mark, x: float, y: float, height: float = 0.2) -> float:
    """One entry of the key at x pixels and row y; where the next one goes."""
    point = pixels_per_point(axes)
    width = float(axes.get_window_extent().width)
    where = axes.get_yaxis_transform()
    drawn = axes.barh(
        y,
        9 * point / width,
        height,
        x / width,
        color=mark.colour,
        hatch=mark.hatch,
        edgecolor=style.QUIET if mark.colour == "#ffffff" else "white",
        linewidth=0.5,
        transform=where,
    )
    drawn[0].set_clip_on(False)
    axes.text((x + GAP_PT * point) / width, y, mark.word, transform=where, va="center")
    return x + _width(axes, mark)


def _width(axes: Axes, mark: Mark) -> float:
    """Pixels of an entry and the gap behind it."""
    return 2 * GAP_PT * pixels_per_point(axes) + float(text_size(axes, mark.word)[0])
