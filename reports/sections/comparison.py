"""Devices beside each other: tokens/s by batch at each context, curves, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from roofcast.reports import figure_data, units
from roofcast.reports.document.blocks import Captioned, Figure, Section
from roofcast.reports.sections import drawing, tradeoffs
from roofcast.reports.sections.asked import Asked
from roofcast.reports.sections.cases import Case, many_batches
from roofcast.reports.tables import Column, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

_MOST_TABLES = 4


def section(cases: Sequence[Case], asked: Asked) -> Section | None:
    """None for a single device."""
    if len(cases) < 2:
        return None
    contexts = cases[0].contexts
    chosen = contexts if len(contexts) <= _MOST_TABLES else (contexts[0], contexts[-1])
    tables = [Captioned(_caption(context), table(cases, context)) for context in chosen]
    blocks = (curves(cases), *tables, *tradeoffs.blocks(cases, asked), breakdown(cases))
    return Section("comparison", "Devices compared", blocks)


def _caption(context: int) -> str:
    return f"Output tokens/s per device (milliseconds per token) at context {context:,}"


def table(cases: Sequence[Case], context: int) -> Table:
    """A row a batch, a column a device."""
    column = cases[0].contexts.index(context)
    return Table(
        (
            Column("batch", [f"{batch:,}" for batch in cases[0].batches]),
            *(Column(case.label, _cells(case, column)) for case in cases),
        )
    )


def _cells(case: Case, column: int) -> list[str]:
    points = case.points
    fits = np.broadcast_to(points.memory.fits, points.step_time_s.shape)[:, column]
    rates, steps = points.tokens_per_s_per_device[:, column], points.step_time_s[:, column]
    return [
        f"{units.significant(rate)} ({units.significant(step * 1e3)})" if ok else "does not fit"
        for rate, step, ok in zip(rates, steps, fits, strict=True)
    ]


def curves(cases: Sequence[Case]) -> Figure:
    """Tokens/s per device over batch, a curve a device, at the first context."""
    context = cases[0].contexts[0]
    lines = [_line(case, context) for case in cases]
    about = f"{cases[0].where.architecture.name} at context {units.tokens(context)}"

    def draw() -> Drawn:
        from roofcast.reports.figures.pages import comparison_figure

        return comparison_figure("Throughput per device", about, [("", lines)])

    best = max(lines, key=lambda line: float(np.max(line.y[line.x <= line.limit], initial=0.0)))
    return drawing.block(
        draw,
        "compared",
        f"Tokens/s per device by batch at context {context:,}.",
        f"Both axes logarithmic; dotted where the cache no longer fits in memory. {best.name} reaches "
        "the highest rate that fits.",
    )


def _line(case: Case, context: int) -> figure_data.Line:
    swept = case.where.decode(many_batches(case), context)
    plain = replace(figure_data.tokens_by_batch(swept, case.label), low=None, high=None)
    return figure_data.per_device(plain, case.devices)


def breakdown(cases: Sequence[Case]) -> Figure:
    """Where the time of the smallest and the largest batch goes on each device."""
    context = cases[0].contexts[0]
    batches = sorted({cases[0].batches[0], cases[0].batches[-1]})
    bars = [
        bar
        for case in cases
        for bar in figure_data.breakdown(
            case.where.decode(np.array(batches, dtype=float), context),
            [f"{case.label}, batch {batch:,}" for batch in batches],
        )
    ]
    name = cases[0].where.architecture.name
    about = f"{name} at context {units.tokens(context)}"

    def draw() -> Drawn:
        from roofcast.reports.figures.pages import breakdown_figure

        return breakdown_figure("Where a decode step's time goes", about, bars)

    return drawing.block(
        draw,
        "spent",
        f"The step time by cause at context {context:,}.",
        f"Bars of {len(bars)} steps, each split into its causes with their share of it.",
    )
