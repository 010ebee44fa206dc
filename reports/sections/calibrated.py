"""A calibration in a report: what was measured where, how far its forecasts are off, its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calibrate.calibration import Calibration
from roofcast.hardware.profile import Profile
from roofcast.reports import profile_text, words
from roofcast.reports.document.blocks import Block, Bullets, Captioned, Fold, Section, Text
from roofcast.reports.sections import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


def section(found: Calibration | Profile, gap: str = "") -> Section:
    """Errors first; residuals where the raw samples are at hand, and why not where `gap` says so."""
    profile = found if isinstance(found, Profile) else found.profile
    said = [f"It sustains {profile_text.roof(*each)}." for each in profile.roofs.items()]
    said += [words.trust(profile), *(f"Note: {each}" for each in profile.warnings)]
    blocks: list[Block] = [Text(words.provenance(profile)), Bullets(tuple(said))]
    if gap:
        blocks.append(Text(f"There are no residuals: {gap}."))
    if isinstance(found, Calibration) and found.judged:
        blocks.append(_residuals(found))
    if profile.held_out:
        caption = "Errors on runs the fit had not seen"
        blocks.append(Captioned(caption, profile_text.errors(profile)))
    parameters = Captioned("Fitted parameters", profile_text.parameters(profile))
    blocks.append(Fold(f"{len(profile.parameters)} parameters", (parameters,)))
    if profile.conditions:
        items = tuple(f"{name}: {value}" for name, value in profile.conditions.items())
        blocks.append(Fold("Conditions it was measured under", (Bullets(items),)))
    return Section("calibration", "Calibration", tuple(blocks))


def _residuals(found: Calibration) -> Block:
    def draw() -> Drawn:
        from roofcast.reports.figures.pages import accuracy_figure

        return accuracy_figure(found)

    return drawing.block(
        draw,
        "residuals",
        "Forecast against measured decode steps, and the error of each.",
        "Left: on the diagonal a forecast is right. Right: the error over the measured step time; "
        "filled marks are runs that the fit had not seen, the band holds 80 % of runs.",
    )
