"""One device: its points, its roofline, and what fills its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from roofcast.reports import forecast_text, units, words
from roofcast.reports.document.blocks import Bullets, Captioned, Figure, Section, Text
from roofcast.reports.sections import drawing
from roofcast.reports.sections.cases import Case
from roofcast.reports.tables import Column, Table
from roofcast.simulator.memory import Memory
from roofcast.simulator.prediction import Forecast

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

_ROOFLINE_BATCHES = (1.0, 16.0, 128.0)


def section(case: Case, number: int) -> Section:
    """`number` tells the sections of several devices apart."""
    warnings = (*case.where.architecture.warnings, *case.where.profile.warnings)
    return Section(
        f"device-{number}",
        case.label,
        (
            Text(f"{words.subject(case.points)}. {words.provenance(case.where.profile)}"),
            *((Bullets(tuple(f"Note: {each}" for each in warnings)),) if warnings else ()),
            Captioned(f"Decode steps on {case.label}", forecast_text.points(case.points)),
            Bullets(tuple(forecast_text.reasons(case.where, case.points))),
            roofline(case, number),
            bounds(case, number),
            *memory(case),
        ),
    )


def roofline(case: Case, number: int) -> Figure:
    """The operators of a step on the roofline at the first context."""
    context = case.contexts[0]
    forecast = case.where.decode(np.array(_ROOFLINE_BATCHES), context)

    def draw() -> Drawn:
        from roofcast.reports.figures.pages import roofline_figure

        return roofline_figure(forecast)

    return drawing.block(
        draw,
        f"roofline-{number}",
        f"Operators of a step on the roofline of {case.where.device.name}, context {context:,}.",
        _described(forecast),
    )


def bounds(case: Case, number: int) -> Figure:
    """What bounds a step at every batch and context, and what fits."""

    def draw() -> Drawn:
        from roofcast.reports.figures.pages import heatmap_figure

        return heatmap_figure(case.where)

    return drawing.block(
        draw,
        f"bounds-{number}",
        f"What bounds a step of {case.label} at every batch and context.",
        "Colours name the bound, stronger where it takes more of the step; lines join equal "
        "tokens/s; the hatched part does not fit in memory.",
    )


def _described(forecast: Forecast) -> str:
    said = ", ".join(
        f"{words.bound_at(forecast, index)} at batch {batch:.0f}"
        for index, batch in enumerate(_ROOFLINE_BATCHES)
    )
    return (
        "Rate over arithmetic intensity, both logarithmic; each operator at "
        f"batch 1, 16 and 128. The whole step is {said}."
    )


def memory(case: Case) -> tuple[Text, Captioned]:
    """The ledger of the fullest device at the largest point."""
    batch, context = case.batches[-1], case.contexts[-1]
    ledger = case.where.decode(batch, context).memory
    fits = "fits" if bool(np.all(ledger.fits)) else "does not fit"
    used, usable = (float(np.max(each)) for each in (ledger.inside_bytes, ledger.usable_bytes))
    return (
        Text(
            f"At batch {batch:,}, context {context:,} the fullest device holds {units.data(used)} of "
            f"the {units.data(usable)} that {ledger.policy.engine} plans with: it {fits}."
        ),
        Captioned(f"What the fullest device of {case.label} holds", _ledger(ledger)),
    )


def _ledger(ledger: Memory) -> Table:
    lines = [line for line in ledger.lines if np.any(line.bytes)]
    return Table(
        (
            Column("line", [line.name for line in lines], right=False),
            Column("bytes", [units.data(float(np.max(line.bytes))) for line in lines]),
            Column("origin", [line.origin for line in lines], right=False),
            Column("why", [line.reason for line in lines], right=False),
            Column("seen in", [line.source for line in lines], right=False),
        )
    )
