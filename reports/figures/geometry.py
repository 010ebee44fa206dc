"""Where ink and texts lie on the screen, in pixels: what label placement and its test stand on."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import NDArray

Points = NDArray[np.float64]

_SAMPLE_PX = 4.0
_MARKER_WEIGHT, _FAINT_WEIGHT = 12.0, 0.4
_NOTHING = ("None", "none", "", " ", None)


def pixels_per_point(axes: Axes) -> float:
    """Screen pixels of one typographic point, 1/72 inch."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes without a figure"
    return float(figure.dpi) / 72.0


def settle(axes: Axes) -> None:
    """Let matplotlib put ticks and axis names where they will be drawn."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes without a figure"
    figure.draw_without_rendering()


def visible_texts(axes: Axes) -> list[Text]:
    """Every text of the axes that shows: labels, ticks inside the limits, title, axis names."""
    ticks = [*_shown_ticks(axes, 0), *_shown_ticks(axes, 1)]
    titles = [axes.title, axes._left_title, axes._right_title, axes.xaxis.label, axes.yaxis.label]  # type: ignore[attr-defined]  # `axes.title` is only the centred one
    return [
        text
        for text in (*axes.texts, *ticks, *titles)
        if text.get_visible() and text.get_text().strip()
    ]


def outline(text: Text) -> Points:
    """The four corners of a text, turned as it is, less half a pixel of side bearing."""
    turn = text.get_rotation()
    width, height, centre = _upright(text, math.radians(turn))
    return rectangle(centre, np.maximum(np.array([width, height]) - 1.0, 1.0), turn)


def rectangle(centre: Points, size: Points, degrees: float = 0.0) -> Points:
    """The four corners of a turned rectangle."""
    turn = math.radians(degrees)
    across = np.array([math.cos(turn), math.sin(turn)]) * size[0] / 2
    up = np.array([-math.sin(turn), math.cos(turn)]) * size[1] / 2
    corners = (-across - up, -across + up, across + up, across - up)
    return np.array([centre + corner for corner in corners])


def meet(first: Points, second: Points) -> bool:
    """Whether two convex outlines share area: no side of either separates them."""
    if (first.max(0) <= second.min(0)).any() or (second.max(0) <= first.min(0)).any():
        return False  # most pairs are far apart
    for corners in (first, second):
        for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            normal = np.array([start[1] - end[1], end[0] - start[0]])
            a, b = first @ normal, second @ normal
            if a.max() <= b.min() or b.max() <= a.min():
                return False
    return True


def overlaps(axes: Axes) -> list[tuple[str, str]]:
    """Pairs of texts that lie on each other; empty for a figure that is in order."""
    settle(axes)
    texts = visible_texts(axes)
    corners = [outline(text) for text in texts]
    return [
        (texts[i].get_text(), texts[j].get_text())
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
        if meet(corners[i], corners[j])
    ]


def ink(axes: Axes) -> Points:
    """What lines and markers cover, as screen points with a weight each: (n, 3)."""
    pieces: list[Points] = [np.zeros((0, 3))]
    for line in axes.lines:
        pieces.extend(_line_ink(line, pixels_per_point(axes)))
    for collection in axes.collections:
        at = np.asarray(collection.get_offset_transform().transform(collection.get_offsets()))
        if at.size and not np.allclose(collection.get_offsets(), 0):
            pieces.append(np.column_stack([at, np.full(len(at), _MARKER_WEIGHT)]))
    return np.concatenate(pieces)


def ink_inside(corners: Points, points: Points) -> float:
    """Weight of the ink inside a convex outline."""
    spots = points[:, :2]
    points = points[((spots > corners.min(0)) & (spots < corners.max(0))).all(1)]
    if not points.size:
        return 0.0
    inside = np.ones(len(points), dtype=bool)
    middle = corners.mean(axis=0)
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        normal = np.array([start[1] - end[1], end[0] - start[0]])
        side = np.sign(float((middle - start) @ normal))
        inside &= side * ((points[:, :2] - start) @ normal) > 0
    return float(points[inside, 2].sum())


def _line_ink(line: Line2D, pixels: float) -> list[Points]:
    path = np.asarray(line.get_transform().transform(line.get_xydata()), dtype=float)
    path = path[np.all(np.isfinite(path), axis=1)]
    pieces = []
    if line.get_linestyle() not in _NOTHING:
        weight = _FAINT_WEIGHT if line.get_linewidth() < 1 else 1.0
        pieces = [_sampled(a, b, weight) for a, b in pairwise(path)]
    if line.get_marker() not in _NOTHING:
        reach = float(line.get_markersize()) / 2 * pixels
        around = np.array([(0, 0), (reach, 0), (-reach, 0), (0, reach), (0, -reach)])
        spots = (path[:, np.newaxis] + around).reshape(-1, 2)
        pieces.append(np.column_stack([spots, np.full(len(spots), _MARKER_WEIGHT)]))
    return pieces


def _sampled(start: Points, end: Points, weight: float) -> Points:
    steps = int(np.clip(np.hypot(*(end - start)) / _SAMPLE_PX, 1, 600))
    along = np.linspace(0.0, 1.0, steps + 1)[:, np.newaxis]
    return np.column_stack([start + along * (end - start), np.full(steps + 1, weight)])


def _upright(text: Text, turn: float) -> tuple[float, float, Points]:
    """Width, height and centre of a text before it was turned."""
    text.get_window_extent()  # moves an annotation to its place; its own extent has the leader in it
    box = Text.get_window_extent(text)
    centre = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
    if abs(math.sin(turn)) < 1e-9:
        return box.width, box.height, centre
    rotation = text.get_rotation
    text.get_rotation = lambda: 0.0  # type: ignore[method-assign]
    try:
        flat = Text.get_window_extent(text)
    finally:
        text.get_rotation = rotation  # type: ignore[method-assign]
    return flat.width, flat.height, centre


def _shown_ticks(axes: Axes, dimension: int) -> list[Text]:
    labels = axes.get_yticklabels() if dimension else axes.get_xticklabels()
    frame = axes.get_window_extent()
    low, high = (frame.y0, frame.y1) if dimension else (frame.x0, frame.x1)
    shown = []
    for label in labels:
        at = label.get_transform().transform(label.get_position())[dimension]
        if low - 1 <= at <= high + 1:
            shown.append(label)
    return shown
