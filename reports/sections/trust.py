"""How far to trust the forecasts: bands, errors on runs the fit had not seen, extrapolation."""

from __future__ import annotations

from collections.abc import Sequence

from roofcast.reports import profile_text, words
from roofcast.reports.document.blocks import Block, Bullets, Captioned, Fold, Section, Text
from roofcast.reports.sections.cases import Case

_SHORT = 4


def section(cases: Sequence[Case]) -> Section:
    """The band of every device, then the errors of every profile."""
    said = [f"{case.label}: {words.trust(case.where.profile)}" for case in cases]
    said += [
        f"{case.label}: {beyond}" for case in cases if (beyond := words.extrapolation(case.points))
    ]
    blocks: list[Block] = [
        Text(
            "A band holds the middle 80 % of measured step times around a forecast. Errors are of "
            "runs or kernels that the fit had not seen."
        ),
        Bullets(tuple(said)),
    ]
    for case in cases:
        profile = case.where.profile
        if profile.held_out:
            caption = f"Errors of {words.profile_name(profile)} on what it had not seen"
            table = Captioned(caption, profile_text.errors(profile))
            long = len(profile.held_out) > _SHORT
            blocks.append(Fold(caption, (table,)) if long else table)
    return Section("trust", "How far to trust it", tuple(blocks))
