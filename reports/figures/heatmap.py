"""A map over batch and context: what bounds the step there, tokens/s as contours, where memory ends.

Hue says what bounds a step and its strength how much of the step that takes; regions are outlined and
named, so that the map reads in grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from roofcast.reports.figure_data import Array
from roofcast.reports.figures import style
from roofcast.reports.figures.geometry import (
    Points,
    ink_inside,
    meet,
    outline,
    pixels_per_point,
    rectangle,
    settle,
    visible_texts,
)
from roofcast.reports.figures.labels import text_size
from roofcast.reports.heat_data import Heat

_NAMES = {
    "weights": "memory-bound: weights",
    "kv_cache": "memory-bound: KV cache",
    "activations": "memory-bound: activations",
    "compute": "compute-bound",
    "interconnect": "bound by the interconnect",
    "overhead": "bound by launch and host",
}
_LEVELS, _PALEST, _STRONGEST = 6, 0.10, 0.62
_MOST_CONTOURS = 9
_FEWEST_CELLS = 24  # smaller regions are outlined but not named
_MOST_PLACES = 120  # tried for a name
_PLATE = {"boxstyle": "square,pad=0.15", "facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.6}
_ABOVE_LIMIT = 1.15  # contours end just beyond the limit, under the veil


def draw(axes: Axes, data: Heat) -> None:
    """The map; what does not fit in memory is veiled and hatched."""
    across, up = _edges(data.context), _edges(data.batch)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(data.context[0], data.context[-1])
    axes.set_ylim(data.batch[0], data.batch[-1])
    axes.grid(visible=False)
    axes.set_xlabel("context (tokens in the cache of each sequence)")
    style.name_y_axis(axes, "batch (sequences decoded together)")
    _tiles(axes, data, across, up)
    axes.add_collection(LineCollection(list(_borders(data, across, up)), colors=style.INK, lw=0.9))
    lines = _contours(axes, data)
    _veil(axes, data, up[-1])
    style.power_ticks(axes, _powers(data.context), spelled=True)
    axes.set_yticks(_powers(data.batch)[::2], [f"{b:,.0f}" for b in _powers(data.batch)[::2]])
    axes.set_yticks([], minor=True)
    _name_regions(axes, data, lines)


def _edges(centres: Array) -> Array:
    """Borders of cells, halfway between their centres in the logarithm."""
    inner = np.sqrt(centres[1:] * centres[:-1])
    return np.concatenate([[centres[0] ** 2 / inner[0]], inner, [centres[-1] ** 2 / inner[-1]]])


def _powers(values: Array) -> list[float]:
    whole = np.isclose(np.log2(values) % 1.0, 0.0)
    return [float(value) for value in values[whole]]


def _tiles(axes: Axes, data: Heat, across: Array, up: Array) -> None:
    """Runs of equal cells as one rectangle, so that a drawing stays small."""
    level = np.ceil(np.clip(data.share, 0.0, 1.0) * _LEVELS).astype(int)
    rectangles: dict[tuple[str, int], list[list[tuple[float, float]]]] = {}
    for row in range(data.batch.size):
        keys = [(str(r), int(k)) for r, k in zip(data.region[row], level[row], strict=True)]
        column = 0
        for key, run in groupby(keys):
            end = column + len(list(run))
            (left, right), (low, high) = across[[column, end]], up[[row, row + 1]]
            corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
            rectangles.setdefault(key, []).append(corners)
            column = end
    for (region, strength), found in rectangles.items():
        # One path a colour: rows drawn one by one would show seams where they meet.
        whole = Path.make_compound_path(*(Path(corners, closed=True) for corners in found))
        alpha = _PALEST + (_STRONGEST - _PALEST) * (strength - 1) / (_LEVELS - 1)
        colour = style.CAUSES[region].colour
        patch = PathPatch(whole, facecolor=colour, alpha=alpha, lw=0, antialiased=False, zorder=1)
        axes.add_patch(patch)


def _borders(data: Heat, across: Array, up: Array) -> Iterator[list[tuple[float, float]]]:
    """The sides between cells of different regions."""
    rows, columns = np.nonzero(data.region[:, 1:] != data.region[:, :-1])
    for row, column in zip(rows, columns, strict=True):
        yield [(across[column + 1], up[row]), (across[column + 1], up[row + 1])]
    rows, columns = np.nonzero(data.region[1:] != data.region[:-1])
    for row, column in zip(rows, columns, strict=True):
        yield [(across[column], up[row + 1]), (across[column + 1], up[row + 1])]


def _contours(axes: Axes, data: Heat) -> Points:
    """Lines of equal tokens/s at 1, 2 and 5 of every decade, each with its number on it.

    Returns where they run on the screen, with a weight each.
    """
    fits = data.batch[:, None] <= _ABOVE_LIMIT * data.limit
    rates = np.where(fits, data.tokens_per_s, np.nan)
    if not np.any(fits) or np.nanmax(rates) <= np.nanmin(rates):
        return np.zeros((0, 3))
    levels = _levels(float(np.nanmin(rates)), float(np.nanmax(rates)))
    lines = axes.contour(
        data.context, data.batch, rates, levels=levels, colors=style.INK, linewidths=0.6, alpha=0.75
    )
    size = style.points(style.SMALL)
    axes.clabel(
        lines, fmt=lambda rate: f"{style.short(rate)} tok/s", fontsize=size, inline_spacing=3
    )
    spots = np.concatenate([path.vertices for path in lines.get_paths()])
    spots = axes.transData.transform(spots)
    return np.column_stack([spots, np.ones(len(spots))])


def _levels(low: float, high: float) -> list[float]:
    """
    >>> _levels(90.0, 2500.0)
    [100.0, 200.0, 500.0, 1000.0, 2000.0]
    """
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    wanted = [d * 10.0**power for power in decades for d in (1, 2, 5)]
    inside = [value for value in wanted if low < value < high]
    return inside[:: max(1, -(-len(inside) // _MOST_CONTOURS))]


def _veil(axes: Axes, data: Heat, top: float) -> None:
    limit = np.maximum(data.limit, 0.5)
    axes.fill_between(
        data.context,
        limit,
        top,
        where=limit < top,
        facecolor="#ffffff",
        edgecolor=style.FAINT,
        hatch="///",
        linewidth=0.0,
        alpha=0.8,
        zorder=3,
    )
    axes.plot(data.context, limit, color=style.INK, linewidth=1.6, zorder=4)


def _name_regions(axes: Axes, data: Heat, lines: Points) -> None:
    """Names on what does not fit and on each region large enough, the largest first."""
    fits = data.batch[:, None] <= data.limit
    found = {"does not fit in memory": ~fits}
    found |= {text: fits & (data.region == name) for name, text in _NAMES.items()}
    settle(axes)
    for text, cells in sorted(found.items(), key=lambda each: -int(np.sum(each[1]))):
        if np.sum(cells) >= _FEWEST_CELLS:
            _name(axes, data, text, cells, lines)


def _name(axes: Axes, data: Heat, text: str, cells: NDArray[np.bool_], lines: Points) -> None:
    """A region's name where it lies within the region and on the fewest lines and texts."""
    size = text_size(axes, text, weight="bold") + 2 * pixels_per_point(axes)
    rows, columns = np.nonzero(cells)
    points = np.column_stack([data.context[columns], data.batch[rows]])
    points = points[:: -(-len(points) // _MOST_PLACES)]
    spots = axes.transData.transform(points)
    middle, taken = spots.mean(axis=0), [outline(each) for each in visible_texts(axes)]
    within = _frame(axes, size)

    def cost(spot: Points) -> float:
        box = rectangle(spot, size)
        beyond = float(np.abs(np.clip(spot, *within) - spot).max() > 0)
        outside = 1.0 - _share_inside(axes, data, cells, box)
        met = sum(meet(box, other) for other in taken)
        away = float(np.hypot(*(spot - middle))) / float(size[0])
        return 200 * beyond + 60 * met + 80 * outside + math.sqrt(ink_inside(box, lines)) + away

    x, y = points[int(np.argmin([cost(spot) for spot in spots]))]
    axes.text(x, y, text, ha="center", va="center", weight="bold", bbox=_PLATE, zorder=6)


def _frame(axes: Axes, size: Points) -> tuple[Points, Points]:
    """Lowest and highest centre at which a box of that size stays within the axes."""
    frame = axes.get_window_extent()
    low, high = np.array([frame.x0, frame.y0]), np.array([frame.x1, frame.y1])
    return low + size / 2, high - size / 2


def _share_inside(axes: Axes, data: Heat, cells: NDArray[np.bool_], box: Points) -> float:
    """The part of a box on the screen that lies on some cells."""
    fractions = np.linspace(0.02, 0.98, 7)
    x = box[:, 0].min() + fractions * np.ptp(box[:, 0])
    y = box[:, 1].min() + fractions[::3] * np.ptp(box[:, 1])
    spots = np.array([(a, b) for a in x for b in y])
    at = axes.transData.inverted().transform(spots)
    columns = np.clip(np.searchsorted(data.context, at[:, 0]), 0, data.context.size - 1)
    rows = np.clip(np.searchsorted(data.batch, at[:, 1]), 0, data.batch.size - 1)
    return float(np.mean(cells[rows, columns]))
