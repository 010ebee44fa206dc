"""Trade-offs: speed for a user against speed of a device; what more tensor ranks bring."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, label_ends, place
from roofcast.simulator.comparison import TensorCurve, Tradeoff


def fronts(axes: Axes, found: Sequence[Tradeoff]) -> None:
    """One line a device, a point a layout and batch that nothing beats; upper right is better."""
    users = np.concatenate([each.per_user for each in found])
    gives = np.concatenate([each.per_device for each in found])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(users.min() / 1.3, users.max() * 1.25)
    axes.set_ylim(gives.min() / 1.5, gives.max() * 1.7)
    axes.set_xlabel("output tokens/s per user")
    style.name_y_axis(axes, "output tokens/s per device")
    style.number_ticks(axes.xaxis, *axes.get_xlim())
    style.number_ticks(axes.yaxis, *axes.get_ylim())
    names: list[Label] = []
    notes: dict[str, Label] = {}
    for front, colour, marker in zip(
        found, cycle(style.SERIES), cycle(style.SERIES_MARKERS), strict=False
    ):
        axes.plot(front.per_user, front.per_device, color=colour, marker=marker, ms=3.5, zorder=3)
        middle = len(front.batch) // 2
        at = float(front.per_user[middle]), float(front.per_device[middle])
        names.append(Label(front.name, *at, colour, weight="bold"))
        for index in (0, len(front.batch) - 1):
            text = f"TP {front.tensor[index]}, batch {front.batch[index]:,}"
            at = float(front.per_user[index]), float(front.per_device[index])
            notes.setdefault(text, Label(text, *at, colour, style.SMALL))
    place(axes, [*names, *notes.values()])


def tensor(axes: Axes, curve: TensorCurve) -> None:
    """Speed with more ranks, relative to the fewest: for one user, and per device at a full batch."""
    ranks = curve.ranks.astype(float)
    gives = curve.saturated_per_device / curve.saturated_per_device[0]
    linear = ranks / ranks[0]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(ranks[0] / 1.08, ranks[-1] * 1.02)
    low = min(float(gives.min()), float(curve.speedup.min()), 1.0) / 1.2
    axes.set_ylim(low, float(linear[-1]) * 1.2)
    axes.set_xlabel("tensor-parallel ranks")
    style.name_y_axis(axes, f"speed relative to TP {curve.ranks[0]}")
    style.number_ticks(axes.yaxis, *axes.get_ylim())
    axes.plot(ranks, linear, color=style.FAINT, ls="--", lw=1.0, zorder=1)
    ends = [Label("twice the ranks, twice the speed", ranks[-1], float(linear[-1]), style.QUIET)]
    for values, name, colour, marker in (
        (curve.speedup, "one user", style.BLUE, "o"),
        (gives, "per device, full batch", style.ORANGE, "s"),
    ):
        axes.plot(ranks, values, color=colour, marker=marker, zorder=3)
        ends.append(Label(name, ranks[-1], float(values[-1]), colour, weight="bold"))
    label_ends(axes, ends)
    style.power_ticks(axes, ranks.tolist())
