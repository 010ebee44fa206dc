"""Which sections a report has, in which order: the place to add one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from roofcast.reports.document.blocks import Document, Section
from roofcast.reports.sections import (
    assumptions,
    audited,
    calibrated,
    comparison,
    explorer,
    forecast,
    planned,
    provenance,
    trust,
    verdict,
)
from roofcast.reports.sections.asked import Asked
from roofcast.reports.sections.cases import Case, all_rows, subject


def document(
    cases: Sequence[Case], version: str, made: datetime | None = None, asked: Asked | None = None
) -> Document:
    """The whole report of one model on some devices, with what else was asked for."""
    asked = asked or Asked()
    title, subtitle = subject(cases)
    day = (made or _today()).strftime("%d %B %Y")
    sections = (
        verdict.section(cases),
        explorer.section(cases),
        comparison.section(cases, asked),
        planned.section(asked.plan) if asked.plan else None,
        audited.section(asked.audited) if asked.audited else None,
        audited.gains(asked.gains) if asked.gains else None,
        calibrated.section(asked.calibration, asked.calibration_gap) if asked.calibration else None,
        *(
            forecast.section(case, number, alone=len(cases) == 1)
            for number, case in enumerate(cases, start=1)
        ),
        trust.section(cases),
        assumptions.section(cases),
        assumptions.limits(cases),
        provenance.section(cases, asked.model_source),
    )
    return Document(
        title=title,
        subtitle=subtitle,
        made=f"Forecast by Roofcast {version} on {day}.",
        sections=tuple(each for each in sections if isinstance(each, Section)),
        rows=all_rows(cases),
    )


def _today() -> datetime:
    """Now, or what SOURCE_DATE_EPOCH says, so that a report can be made again as it was.

    Source: https://reproducible-builds.org/specs/source-date-epoch/
    """
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(stated), UTC) if stated.isdecimal() else datetime.now(UTC)
