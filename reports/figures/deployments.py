"""Deployments of a plan: what they cost against what a user sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from roofcast.reports.figure_data import Array
from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, label_line, place


@dataclass(frozen=True, slots=True)
class Deployments:
    """All deployments of one device: speed of a user, and `value` (a cost or a rate) of each.

    `best` is the index of the one to name, `name` its words.
    """

    name: str
    per_user: Array
    value: Array
    best: int


def draw(
    axes: Axes, groups: Sequence[Deployments], value: str, slowest: float | None = None
) -> None:
    """A point a deployment, the best of each device filled and named; `slowest` is the objective."""
    users = np.concatenate([each.per_user for each in groups])
    values = np.concatenate([each.value for each in groups])
    left = users.min() if slowest is None else min(float(users.min()), slowest)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left / 1.25, users.max() * 1.6)
    axes.set_ylim(values.min() / 1.6, values.max() * 1.6)
    style.number_ticks(axes.xaxis, *axes.get_xlim())
    style.number_ticks(axes.yaxis, *axes.get_ylim())
    axes.set_xlabel("output tokens/s per user")
    style.name_y_axis(axes, value)
    labels = []
    for group, colour, marker in zip(
        groups, cycle(style.SERIES), cycle(style.SERIES_MARKERS), strict=False
    ):
        axes.plot(
            group.per_user, group.value, ls="", marker=marker, ms=4, color=colour, alpha=0.45, mew=0
        )
        x, y = float(group.per_user[group.best]), float(group.value[group.best])
        axes.plot([x], [y], marker=marker, ms=8, color=colour, mec=style.INK, mew=0.9, zorder=5)
        labels.append(Label(group.name, x, y, colour, weight="bold"))
    if slowest is not None:
        axes.axvline(slowest, color=style.QUIET, ls=":", lw=1.1)
        low, high = axes.get_ylim()
        name = Label("objective", slowest, low, style.QUIET, style.SMALL)
        label_line(axes, name, ((slowest, low), (slowest, high)), 0.8)
    place(axes, labels)
