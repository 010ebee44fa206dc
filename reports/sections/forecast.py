"""One device: its points, its roofline, and what fills its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from roofcast.reports import forecast_text, units, words
from roofcast.reports.document.blocks import Bullets, Captioned, Figure, Section, Text
from roofcast.reports.sections import drawing
from roofcast.reports.sections.cases import Case, many_batches, many_contexts
from roofcast.reports.tables import Column, Table
from roofcast.simulator.memory import Memory
from roofcast.simulator.prediction import Forecast

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

_MOST_CURVES = 4
_ROOFLINE_BATCHES = (1.0, 16.0, 128.0)


def section(case: Case, number: int, *, alone: bool = False) -> Section:
    """`number` tells the sections of several devices apart; one `alone` gets its own curves."""
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
            *(curves(case) if alone else ()),
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


def curves(case: Case) -> tuple[Figure, Figure]:
    """Tokens/s over batch and time per token over context, with their bands."""
    contexts, batches = _few(case.contexts), _few(case.batches)

    def by_batch() -> Drawn:
        from roofcast.reports.figures.pages import throughput_figure

        return throughput_figure([case.where.decode(many_batches(case), each) for each in contexts])

    def by_context() -> Drawn:
        from roofcast.reports.figures.pages import latency_figure

        return latency_figure([case.where.decode(each, many_contexts(case)) for each in batches])

    band = "Bands hold 80 % of measured steps; dotted where the cache no longer fits in memory."
    named = [", ".join(f"{each:,}" for each in few) for few in (contexts, batches)]
    return (
        drawing.block(
            by_batch,
            "tokens",
            "Tokens/s by batch.",
            f"A curve for each context: {named[0]}. {band}",
        ),
        drawing.block(
            by_context,
            "waits",
            "Time per token by context.",
            f"One for each batch: {named[1]}. {band}",
        ),
    )


def _few(values: Sequence[int]) -> list[int]:
    """The values, or as many as an eye can tell apart."""
    picked = np.linspace(0, len(values) - 1, min(len(values), _MOST_CURVES)).round().astype(int)
    return [values[index] for index in np.unique(picked)]


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
    bounds = [words.bound_at(forecast, index) for index in range(len(_ROOFLINE_BATCHES))]
    said = ", ".join(
        f"{bound} at batch {batch:.0f}"
        for bound, batch in zip(bounds, _ROOFLINE_BATCHES, strict=True)
    )
    whole = f"{bounds[0]} at all of them" if len(set(bounds)) == 1 else said
    return (
        "Rate over arithmetic intensity, both logarithmic; each operator at "
        f"batch 1, 16 and 128. The whole step is {whole}."
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
