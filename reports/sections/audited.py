"""Measured points in a report: floor, forecast and measurement, where the time went, suspects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calibrate.audit.audit import Audited
from roofcast.calibrate.audit.before_after import Gain
from roofcast.reports import audit_text, words
from roofcast.reports.document.blocks import Block, Bullets, Captioned, Fold, Section, Text
from roofcast.reports.sections import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

_SHOWN, _EXPLAINED = 40, 8


def section(points: Sequence[Audited]) -> Section:
    """A part for each file."""
    files = dict.fromkeys(each.record.file for each in points)
    blocks: list[Block] = []
    for number, path in enumerate(files, start=1):
        blocks += _file([each for each in points if each.record.file == path], number)
    return Section("audit", "Measured points audited", tuple(blocks))


def _file(points: Sequence[Audited], number: int) -> Iterator[Block]:
    first = points[0]
    name = Path(
        first.record.file
    ).name  # a report is passed on: whose folder it was is no one's business
    yield Text(f"{name}: {first.record.format}. {_against(points)}")
    said = [*audit_text.assumptions(points), audit_text.batch_source(first)]
    said += audit_text.summary(points) if len(points) > _EXPLAINED else []
    yield Bullets(tuple(said))
    shown = audit_text.gravest(points, _SHOWN)
    caption = f"Points of {name}"
    if len(points) > _SHOWN:
        caption = f"The {_SHOWN} gravest of {len(points):,} points of {name}"
    yield Captioned(caption, audit_text.points(shown), heads=False)
    yield from _figures(points, number)
    explained = [_explained(each) for each in audit_text.gravest(points, _EXPLAINED)]
    if any(explained):
        told = Bullets(tuple(text for text in explained if text))
        count = len(told.items)
        yield told if count <= 3 else Fold(f"Suspects of {count} points", (told,))


def _against(points: Sequence[Audited]) -> str:
    """What the points were held against, where that is one and the same."""
    setups = {id(each.placed.setup): each.placed.setup for each in points if each.placed}
    if len(setups) != 1:
        return ""
    (where,) = setups.values()
    return f"{audit_text.subject(where)}. {words.provenance(where.profile)}"


def _figures(points: Sequence[Audited], number: int) -> Iterator[Block]:
    known = [each for each in points if each.waterfall is not None]
    if not known:
        return

    def spent() -> Drawn:
        from roofcast.reports.figures.audit_page import audit_figure

        return audit_figure(points)

    yield drawing.block(
        spent,
        f"audit-{number}",
        "Where the measured time went.",
        "Parts of the forecast, prompts of others, and what no part explains; lines mark the floor "
        "and the forecast. Beside them, where there are more than three points, each forecast's error.",
    )
    if len({id(each.placed.setup) for each in known if each.placed}) == 1:

        def placed() -> Drawn:
            from roofcast.reports.figures.audit_page import measured_roofline

            return measured_roofline(points)

        yield drawing.block(
            placed,
            f"audit-roofline-{number}",
            "The measured steps on the roofline.",
            "Stars are whole steps as measured, the other marks the operators as forecast.",
        )


def _explained(each: Audited) -> str:
    name = each.record.where or f"batch {each.record.value('batch') or 0:,.0f}"
    lines = audit_text.explanation(each)
    return f"{name}: {' '.join(lines)}" if lines else ""


def gains(found: Sequence[Gain]) -> Section:
    """Before and after a change: what was gained, what it allows, the verdict."""
    said = tuple(f"{_size(each)}{each.verdict}: {each.words}." for each in found)
    table = Captioned("Gains of tokens/s for a user", audit_text.gains(found))

    def draw() -> Drawn:
        from roofcast.reports.figures.audit_page import gains_figure

        return gains_figure(found)

    figure = drawing.block(
        draw,
        "gains-drawn",
        "What the change brought.",
        "Dots are measured gains with their noise, ticks what the forecast expects of the change, "
        "bars what physics allows it at most: a dot clear of its bar has another cause as well.",
    )
    return Section("gains", "Before and after", (Bullets(said), figure, table))


def _size(gain: Gain) -> str:
    batch = gain.before.record.value("batch")
    return f"Batch {batch:,.0f}: " if batch else ""
