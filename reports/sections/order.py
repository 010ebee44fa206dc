"""Which sections a report has, in which order: the place to add one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from roofcast.reports.document.blocks import Document
from roofcast.reports.sections import (
    assumptions,
    comparison,
    explorer,
    forecast,
    provenance,
    trust,
    verdict,
)
from roofcast.reports.sections.cases import Case, all_rows, subject


def document(cases: Sequence[Case], version: str, made: datetime | None = None) -> Document:
    """The whole report of one model on some devices."""
    title, subtitle = subject(cases)
    compared = comparison.section(cases)
    day = (made or datetime.now(UTC)).strftime("%d %B %Y")
    return Document(
        title=title,
        subtitle=subtitle,
        made=f"Forecast by Roofcast {version} on {day}.",
        sections=(
            verdict.section(cases),
            explorer.section(cases),
            *((compared,) if compared else ()),
            *(forecast.section(case, number) for number, case in enumerate(cases, start=1)),
            trust.section(cases),
            assumptions.section(cases),
            assumptions.limits(cases),
            provenance.section(cases),
        ),
        rows=all_rows(cases),
    )
