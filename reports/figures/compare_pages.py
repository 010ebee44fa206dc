"""Figures of a comparison: the trade-off of each device, its cost over batch, tensor parallelism."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from roofcast.reports.figure_data import Line
from roofcast.reports.figures import curves, style, tradeoffs
from roofcast.reports.figures.sheet import sheet
from roofcast.simulator.comparison import Contender, TensorCurve, Tradeoff, batches_up_to
from roofcast.simulator.planning.prices import Power


def tradeoff_figure(found: Sequence[Tradeoff], subtitle: str) -> Figure:
    """The fronts of several devices on one plane."""
    with style.applied():
        figure, (axes,) = sheet("What a device gives, and what a user sees", subtitle)
        tradeoffs.fronts(axes, found)
        return figure


def cost_figure(lines: Sequence[Line], subtitle: str) -> Figure:
    """USD per million output tokens of pure decode over batch."""
    with style.applied():
        figure, (axes,) = sheet("Cost of a million output tokens", subtitle)
        curves.throughput(axes, lines, "USD per million output tokens")
        return figure


def cost_lines(who: Sequence[Contender], context: int, power: Power) -> list[Line]:
    """A curve for each contender with a price, up to the batch that fits."""
    lines = []
    for each in who:
        batches = batches_up_to(each.largest_batch)
        costs = each.usd_per_million_tokens(each.where.decode(batches, context), power)
        if costs is not None:
            count = "" if each.devices == 1 else f"{each.devices} x "
            name = f"{count}{each.where.device.id}"
            lines.append(Line(name, batches, np.asarray(costs), float(each.largest_batch)))
    return lines


def tensor_figure(curve: TensorCurve, subtitle: str) -> Figure:
    """One device's gain from more tensor ranks."""
    with style.applied():
        figure, (axes,) = sheet("What more tensor ranks bring", subtitle)
        tradeoffs.tensor(axes, curve)
        return figure
