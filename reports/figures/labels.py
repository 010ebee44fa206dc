"""Labels that lie on nothing: beside their point, at the end of their curve, along their line.

Sizes are measured with the figure's own renderer, so limits and the figure's size must be final when
labels are placed. Each call keeps clear of the texts that are already there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation, Text
from matplotlib.transforms import ScaledTranslation

from roofcast.reports.figures import style
from roofcast.reports.figures.geometry import (
    Points,
    ink,
    ink_inside,
    meet,
    outline,
    pixels_per_point,
    rectangle,
    settle,
    visible_texts,
)

_DIRECTIONS = 16
_DISTANCES_PT = (4.0, 7.0, 11.0, 16.0, 23.0, 32.0, 44.0, 60.0, 80.0)
_LEADER_FROM_PT = 13.0
_TEXT_COST, _LINE_COST, _OUTSIDE_COST = 60.0, 3.0, 200.0
_ALONG = np.linspace(0.03, 0.97, 40)


@dataclass(frozen=True, slots=True)
class Label:
    """A text that names the point (x, y) of the data; `scale` is of the figure's font size."""

    text: str
    x: float
    y: float
    colour: str = style.INK
    scale: float = 1.0
    weight: str = "normal"


class LineText(Text):
    """A text that runs along a line through two points of the data, whatever the axes become."""

    def __init__(self, ends: Points, **options: Any) -> None:
        """`ends` are two points on the line; the options are those of Text."""
        self._ends = ends
        super().__init__(rotation_mode="anchor", **options)

    def get_rotation(self) -> float:
        """Degrees on the screen between the two points."""
        if getattr(self, "axes", None) is None:
            return 0.0
        return _angle(self.axes, self._ends)  # type: ignore[arg-type]


def place(axes: Axes, labels: Sequence[Label]) -> list[Annotation]:
    """Write each label near its point where it covers least: no text, few lines, inside the axes.

    Labels are placed in the order given, so those that matter most come first. One that had to move
    away gets a thin leader.
    """
    settle(axes)
    taken = [outline(text) for text in visible_texts(axes)]
    drawn = ink(axes)
    placed = []
    for label in labels:
        annotation = _beside(axes, label, taken, drawn)
        taken.append(outline(annotation))
        placed.append(annotation)
    return placed


def label_line(
    axes: Axes,
    label: Label,
    ends: tuple[tuple[float, float], tuple[float, float]],
    prefer: float = 0.0,
) -> Text:
    """Write a label along a straight line, above or below it, where it covers least.

    `prefer` is where along the line (0 to 1) it should be if nothing is in the way.
    """
    corners = np.array(ends, dtype=float)
    taken = [outline(text) for text in visible_texts(axes)]
    drawn = ink(axes)
    point = pixels_per_point(axes)
    start, end = axes.transData.transform(corners)
    size = _size(axes, label)
    angle = _angle(axes, corners)
    normal = np.array([-math.sin(math.radians(angle)), math.cos(math.radians(angle))])
    best = (math.inf, 0.5, 1)
    for side in (1, -1):
        for along in _ALONG:
            middle = start + along * (end - start) + side * normal * (size[1] / 2 + 2 * point)
            box = rectangle(middle, size + point, angle)
            cost = _cost(axes, box, taken, drawn) + abs(along - prefer) * 4 + (side < 0)
            best = min(best, (cost, float(along), side))
    return _write_along(axes, label, corners, best[1], best[2])


def label_ends(axes: Axes, ends: Sequence[Label], gap_pt: float = 4.0) -> list[Annotation]:
    """Write labels to the right of the ends of curves, moved apart where they would touch.

    Makes room by extending the x axis, so call it after the limits are set.
    """
    if not ends:
        return []
    point = pixels_per_point(axes)
    sizes = np.array([_size(axes, end) for end in ends])
    extend_right(axes, float(sizes[:, 0].max()) + (gap_pt + 12) * point)
    anchors = axes.transData.transform([(end.x, end.y) for end in ends])
    height = float(sizes[:, 1].max())
    heights = spread(anchors[:, 1], height, axes.get_window_extent().y1)
    annotations = []
    for end, anchor, y in zip(ends, anchors, heights, strict=True):
        moved = abs(y - anchor[1]) > 0.5 * height
        offset = (gap_pt + (9 if moved else 2), (y - anchor[1]) / point)
        annotations.append(_annotate(axes, end, offset, leader=moved, align=("left", "center")))
    return annotations


def text_size(axes: Axes, text: str, scale: float = 1.0, weight: str = "normal") -> Points:
    """Width and height of a text in pixels, before it is written."""
    size = style.points(scale)
    draft = axes.text(0, 0, text, fontsize=size, fontweight=weight, transform=axes.transAxes)
    box = draft.get_window_extent()
    draft.remove()
    return np.array([box.width, box.height])


def spread(wanted: Points, height: float, top: float) -> Points:
    """Positions at least `height` apart and `height`/2 below `top`, close to the wanted ones.

    >>> spread(np.array([5.0, 0.0, 1.0]), 2.0, 100.0).tolist()
    [5.0, -0.5, 1.5]
    """
    order = np.argsort(wanted, kind="stable")
    groups: list[tuple[list[float], float]] = []  # wanted positions, and where the lowest one goes
    for value in wanted[order]:
        members, low = [float(value)], float(value)
        while groups and groups[-1][1] + len(groups[-1][0]) * height > low:
            members = [*groups.pop()[0], *members]
            low = float(np.mean([v - i * height for i, v in enumerate(members)]))
        groups.append((members, low))
    heights = np.array([low + i * height for members, low in groups for i in range(len(members))])
    ceiling = top - height / 2 - height * np.arange(len(heights))[::-1]
    result = np.empty_like(heights)
    result[order] = np.minimum(heights, ceiling)
    return result


def _beside(axes: Axes, label: Label, taken: list[Points], drawn: Points) -> Annotation:
    point = pixels_per_point(axes)
    anchor = axes.transData.transform((label.x, label.y))
    size = _size(axes, label)
    best, offset = math.inf, np.zeros(2)
    for candidate in _offsets(size, point):
        box = rectangle(anchor + candidate, size + 2 * point)
        cost = _cost(axes, box, taken, drawn) + _gap(candidate, size) / point / 5
        if cost < best:
            best, offset = cost, candidate
    far = _gap(offset, size) > _LEADER_FROM_PT * point
    return _annotate(axes, label, tuple(offset / point), leader=far, align=("center", "center"))


def _annotate(
    axes: Axes,
    label: Label,
    offset_pt: tuple[float, ...],
    *,
    leader: bool,
    align: tuple[str, str],
) -> Annotation:
    arrow = {"arrowstyle": "-", "color": style.FAINT, "lw": 0.6, "shrinkA": 0, "shrinkB": 3}
    return axes.annotate(
        label.text,
        xy=(label.x, label.y),
        xytext=(offset_pt[0], offset_pt[1]),
        textcoords="offset points",
        ha=align[0],
        va=align[1],
        color=label.colour,
        fontsize=style.points(label.scale),
        fontweight=label.weight,
        arrowprops=arrow if leader else None,
        annotation_clip=False,
        zorder=6,
    )


def _write_along(axes: Axes, label: Label, ends: Points, along: float, side: int) -> Text:
    start, end = axes.transData.transform(ends)
    at = axes.transData.inverted().transform(start + along * (end - start))
    turn = math.radians(_angle(axes, ends))
    inches = side * 2 / 72
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes without a figure"
    lift = ScaledTranslation(
        -math.sin(turn) * inches, math.cos(turn) * inches, figure.dpi_scale_trans
    )
    text = LineText(
        ends,
        x=at[0],
        y=at[1],
        text=label.text,
        color=label.colour,
        fontsize=style.points(label.scale),
        fontweight=label.weight,
        ha="center",
        va="bottom" if side > 0 else "top",
        zorder=5,
    )
    axes.add_artist(text)
    text.set_transform(axes.transData + lift)
    return text


def _offsets(size: Points, point: float) -> Iterator[Points]:
    """Centres to try, relative to the anchor: around it, closest first."""
    for distance in _DISTANCES_PT:
        for turn in range(_DIRECTIONS):
            angle = 2 * math.pi * turn / _DIRECTIONS
            direction = np.array([math.cos(angle), math.sin(angle)])
            yield direction * distance * point + np.round(direction, 2) * size / 2


def _gap(offset: Points, size: Points) -> float:
    """Pixels between the anchor and the nearest edge of the text."""
    return float(np.hypot(*np.maximum(np.abs(offset) - size / 2, 0.0)))


def _cost(axes: Axes, box: Points, taken: list[Points], drawn: Points) -> float:
    cost = _TEXT_COST * sum(meet(box, other) for other in taken)
    cost += _LINE_COST * math.sqrt(ink_inside(box, drawn))
    frame = axes.get_window_extent()
    below, above = np.array([frame.x0, frame.y0]), np.array([frame.x1, frame.y1])
    beyond = np.maximum(np.maximum(below - box, box - above), 0.0).max()
    return cost + (_OUTSIDE_COST if beyond > 0 else 0.0)


def _size(axes: Axes, label: Label) -> Points:
    return text_size(axes, label.text, label.scale, label.weight)


def _angle(axes: Axes, ends: Points) -> float:
    (x0, y0), (x1, y1) = axes.transData.transform(ends)
    return math.degrees(math.atan2(y1 - y0, x1 - x0))


def extend_right(axes: Axes, pixels: float) -> None:
    """Move the right limit so that `pixels` are free beyond the present one."""
    low, high = axes.get_xlim()
    width = axes.get_window_extent().width
    grow = width / max(width - pixels, 0.3 * width)
    if axes.get_xscale() == "log":
        axes.set_xlim(low, low * (high / low) ** grow)
    else:
        axes.set_xlim(low, low + (high - low) * grow)
