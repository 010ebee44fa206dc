"""The roofline: what a device allows at each arithmetic intensity, and where operators sit.

    rate <= min(peak, intensity x bandwidth)

Source: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from roofcast.reports import units
from roofcast.reports.figure_data import OperatorPath, Roof, Roofline
from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, extend_right, label_line, place, text_size

_SHEET, _MEASURED = "-", (0, (5, 2.2))
Ends = tuple[tuple[float, float], tuple[float, float]]


def draw(axes: Axes, data: Roofline) -> None:
    """Draw roofs, ridge and operators; axes are logarithmic, memory roofs have slope 1."""
    _frame(axes, data)
    data = replace(data, compute=_with_room_for_names(axes, data))
    _make_room(axes, data)
    lines = [*_memory_lines(axes, data), *_compute_lines(axes, data)]
    for roof, ends in lines:
        axes.plot(*zip(*ends, strict=True), **_roof_style(roof), zorder=2)
    _ridge(axes, data)
    for path in data.paths:
        _path(axes, path)
    # Level names first: a rising line offers more places.
    for roof, ends in reversed(lines):
        rising = ends[0][1] != ends[1][1]
        unit = "B/s" if rising else "FLOP/s"
        colour = style.QUIET if roof.measured else style.INK
        label_line(
            axes, Label(_text(roof, unit), 0, 0, colour), ends, prefer=0.25 if rising else 0.8
        )
    _stars(axes, data)
    place(axes, [*_measured(data), *_names(data), *_batches(data), _ridge_label(axes, data)])


def _frame(axes: Axes, data: Roofline) -> None:
    intensities = np.concatenate([path.intensity_flop_per_byte for path in data.paths])
    rates = np.concatenate([path.flops_per_s for path in data.paths])
    rates = np.append(rates, [step.flops_per_s for step in data.measured])
    peak = max(roof.value for roof in data.compute)
    bandwidth = max(roof.value for roof in data.memory)
    axes.set_xscale("log")
    axes.set_yscale("log")
    low = min(intensities.min() / 10, 0.5)  # room to name the memory roofs
    axes.set_xlim(low, max(peak / bandwidth * 10, intensities.max() * 4))
    axes.set_ylim(min(rates.min() / 3, low * bandwidth / 2), peak * 2.5)
    style.number_ticks(axes.xaxis, *axes.get_xlim())
    style.unit_ticks(axes.yaxis, "FLOP/s")
    axes.set_xlabel("arithmetic intensity (FLOP per byte)")
    style.name_y_axis(axes, "rate per device")


def _with_room_for_names(axes: Axes, data: Roofline) -> tuple[Roof, ...]:
    """The peaks, less those of other dtypes that lie too close to one of the step's own dtype."""
    height = float(text_size(axes, "0")[1]) * 1.15

    def level(roof: Roof) -> float:
        return float(axes.transData.transform((1.0, roof.value))[1])

    own = [roof for roof in data.compute if data.dtype in roof.name.replace(",", "").split()]
    return tuple(
        roof
        for roof in data.compute
        if roof in own or all(abs(level(roof) - level(other)) > height for other in own)
    )


def _text(roof: Roof, unit: str) -> str:
    return f"{roof.name} {units.tidy(roof.value, unit)}"


def _make_room(axes: Axes, data: Roofline) -> None:
    """Extend the x axis until the level part of every compute roof is as long as its name."""
    edge = axes.get_window_extent().x1
    lacking = 0.0
    for roof, (start, _) in _compute_lines(axes, data):
        level = edge - axes.transData.transform(start)[0]
        lacking = max(lacking, 1.15 * float(text_size(axes, _text(roof, "FLOP/s"))[0]) - level)
    if lacking > 0:
        extend_right(axes, lacking)


def _roof_style(roof: Roof) -> dict[str, Any]:
    if roof.measured:
        return {"color": style.QUIET, "linestyle": _MEASURED, "linewidth": 1.2}
    return {"color": style.INK, "linestyle": _SHEET, "linewidth": 1.3}


def _memory_lines(axes: Axes, data: Roofline) -> list[tuple[Roof, Ends]]:
    """Each memory roof up to the highest peak of its own origin, or of any."""
    left = axes.get_xlim()[0]
    lines = []
    for roof in data.memory:
        alike = [peak.value for peak in data.compute if peak.measured == roof.measured]
        top = max(alike or [peak.value for peak in data.compute])
        lines.append((roof, ((left, left * roof.value), (top / roof.value, top))))
    return lines


def _compute_lines(axes: Axes, data: Roofline) -> list[tuple[Roof, Ends]]:
    """Each peak from the memory roof of its own origin, or the highest, to the right edge."""
    right = axes.get_xlim()[1]
    lines = []
    for roof in data.compute:
        alike = [line.value for line in data.memory if line.measured == roof.measured]
        bandwidth = max(alike or [line.value for line in data.memory])
        lines.append((roof, ((roof.value / bandwidth, roof.value), (right, roof.value))))
    return lines


def _ridge(axes: Axes, data: Roofline) -> None:
    x = data.ridge_flop_per_byte
    top = x * max(roof.value for roof in data.memory)
    axes.plot([x, x], [axes.get_ylim()[0], top], color=style.FAINT, linewidth=0.9, linestyle=":")
    axes.plot([x], [top], marker="o", color="white", markeredgecolor=style.INK, markersize=4.5)


def _ridge_label(axes: Axes, data: Roofline) -> Label:
    low, high = axes.get_ylim()
    text = f"{data.dtype} ridge\n{units.significant(data.ridge_flop_per_byte)} FLOP/B"
    return Label(
        text, data.ridge_flop_per_byte, low * (high / low) ** 0.06, style.QUIET, style.SMALL
    )


def _path(axes: Axes, path: OperatorPath) -> None:
    mark = style.KINDS[path.kind]
    axes.plot(
        path.intensity_flop_per_byte,
        path.flops_per_s,
        color=mark.colour,
        linewidth=0.8,
        marker=mark.marker,
        markeredgecolor="white",
        markeredgewidth=0.6,
        zorder=4,
    )


def _stars(axes: Axes, data: Roofline) -> None:
    """Whole steps as they were measured."""
    if not data.measured:
        return
    axes.plot(
        [step.intensity_flop_per_byte for step in data.measured],
        [step.flops_per_s for step in data.measured],
        ls="",
        marker="*",
        ms=11,
        color=style.INK,
        markeredgecolor="white",
        markeredgewidth=0.6,
        zorder=5,
    )


def _measured(data: Roofline) -> list[Label]:
    """A label for each batch; the first one says what a star is."""
    steps = {f"{step.batch:,.0f}": step for step in data.measured}
    return [
        Label(
            f"measured step, batch {batch}" if index == 0 else batch,
            step.intensity_flop_per_byte,
            step.flops_per_s,
            weight="bold",
        )
        for index, (batch, step) in enumerate(steps.items())
    ]


def _names(data: Roofline) -> list[Label]:
    """The operators' names, each at the point of its path that is farthest from other paths."""
    labels = []
    for path in data.paths:
        others = [other for other in data.paths if other is not path]
        index = max(range(len(path.batch)), key=lambda i: _clearance(path, i, others))
        colour = style.KINDS[path.kind].colour
        x, y = path.intensity_flop_per_byte[index], path.flops_per_s[index]
        labels.append(Label(path.name, float(x), float(y), colour, weight="bold"))
    return labels


def _clearance(path: OperatorPath, index: int, others: list[OperatorPath]) -> float:
    x, y = path.intensity_flop_per_byte[index], path.flops_per_s[index]
    distances = [
        np.hypot(np.log10(other.intensity_flop_per_byte / x), np.log10(other.flops_per_s / y)).min()
        for other in others
    ]
    return float(min(distances, default=0.0))


def _batches(data: Roofline) -> list[Label]:
    """The batch beside each point of the path that spreads most over them."""
    path = max(data.paths, key=lambda p: float(np.ptp(np.log10(p.intensity_flop_per_byte))))
    places = zip(path.batch, path.intensity_flop_per_byte, path.flops_per_s, strict=True)
    return [
        Label(
            f"batch {batch:.0f}" if i == 0 else f"{batch:.0f}",
            float(x),
            float(y),
            scale=style.SMALL,
        )
        for i, (batch, x, y) in enumerate(places)
    ]
