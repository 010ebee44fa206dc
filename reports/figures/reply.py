"""One reply: what each further token takes as the cache grows, split by cause."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofcast.reports.figure_data import Growth
from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, label_ends

_SLIVER = 0.01


def draw(axes: Axes, data: Growth) -> None:
    """Areas stacked to the step time, each named at its right end."""
    total_s = np.sum(list(data.seconds.values()), axis=0)
    factor, unit = style.time_unit(float(total_s.max()))
    total = total_s * factor
    axes.set_xlim(data.context[0], data.context[-1])
    axes.set_ylim(0, float(total.max()) * 1.08)
    axes.set_xlabel("tokens in the cache")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    style.name_y_axis(axes, f"{unit} per token")
    base = np.zeros_like(total)
    ends = []
    for cause, mark in style.CAUSES.items():
        top = base + data.seconds[cause] * factor
        sliver = np.max(top - base) < _SLIVER * total.max()
        axes.fill_between(
            data.context,
            base,
            top,
            facecolor=mark.colour,
            hatch=None if sliver else mark.hatch,
            edgecolor=mark.colour if sliver else "white",
            linewidth=0.0 if sliver else 0.5,
        )
        if not sliver:
            middle = float(base[-1] + top[-1]) / 2
            ends.append(Label(mark.word, float(data.context[-1]), middle))
        base = top
    label_ends(axes, ends)
