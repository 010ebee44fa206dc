"""`roofcast calibrate show`, `merge` and `diff`: calibrations that were made before."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from roofcast.calibrate.calibration import ENGINE, Calibration, journal_path
from roofcast.calibrate.comparison import Comparison, compare_files
from roofcast.calibrate.merging import merge as pool
from roofcast.calibrate.residuals import Residual, residuals_of
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.detect import attached
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import Profile
from roofcast.hardware.profile_store import path_for, read
from roofcast.reports import calibration_text, options, output, profile_text, words

_FIGURES = typer.Option(
    "--figures", metavar="FOLDER", help="Draw the residuals into this folder.", show_default=False
)


def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A profile; by default the calibration of the attached device.",
            show_default=False,
        ),
    ] = None,
    *,
    figures: Annotated[Path | None, _FIGURES] = None,
    json: options.Json = False,
) -> None:
    """Show a calibration: conditions, what was reached, errors, residuals, fitted parameters, warnings.

    Residuals need the raw samples, which lie beside the profile (.samples.jsonl).

    \b
    Examples:
      roofcast calibrate show
      roofcast calibrate show h100.json --figures h100
    """
    path = file or path_for(attached("auto").id, ENGINE)
    profile = read(path)
    device = _device_of(profile)
    missed = residuals_of(path, device) if device and journal_path(path).is_file() else ()
    if json:
        output.emit_json({**dataclasses.asdict(profile), "residuals": _as_json(missed)})
    else:
        _say(profile, device, missed)
    if figures is not None:
        _draw(profile, missed, figures)


def _device_of(profile: Profile) -> Accelerator | None:
    """The device of a profile, if this machine or the catalogue knows it."""
    here = attached("auto")
    if here.id == profile.device:
        return here
    try:
        return find(profile.device)
    except InputError:
        return None


def _as_json(found: tuple[Residual, ...]) -> list[dict[str, Any]]:
    return [
        {
            "kind": each.kind,
            "task": each.label,
            "measured_s": each.measured_s,
            "forecast_s": each.forecast_s,
        }
        for each in found
    ]


def _say(profile: Profile, device: Accelerator | None, missed: tuple[Residual, ...]) -> None:
    output.say(words.provenance(profile))
    output.say(", ".join(f"{name} {value}" for name, value in profile.conditions.items()))
    if device and profile.roofs:
        output.say()
        output.show(calibration_text.reached(profile, device))
    output.say()
    output.show(profile_text.errors(profile))
    if missed:
        output.say()
        output.show(calibration_text.residuals(missed))
    output.say()
    output.show(profile_text.parameters(profile))
    warn(profile)


def _draw(profile: Profile, missed: tuple[Residual, ...], folder: Path) -> None:
    from roofcast.reports.figures.calibration_pages import residual_pages

    if not missed:
        raise InputError(
            f"no residuals to draw of {profile.name}: its raw samples must lie beside it, and its "
            "device must be this one or in the catalogue"
        )
    for path in residual_pages(profile, missed, folder):
        output.note(f"wrote {path}")


def merge(
    profiles: Annotated[
        list[Path],
        typer.Argument(metavar="FILE FILE...", help="Profiles with samples beside them."),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the merged profile goes.")],
    json: options.Json = False,
) -> None:
    """Fit the samples of several calibrations of one device together; unlike conditions are refused.

    \b
    Examples:
      roofcast calibrate merge monday.json tuesday.json --out both.json
    """
    first = read(profiles[0])
    device = _device_of(first)
    if device is None:
        raise InputError(
            f"{profiles[0]} is of {first.device}, which is neither this machine nor in the catalogue"
        )
    found = pool(profiles, out, device)
    if json:
        output.emit_json(found.as_json())
    else:
        report(found)


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A profile.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another.")],
    *,
    json: options.Json = False,
) -> None:
    """Say what changed between two calibrations (driver, power cap, card), beyond noise or not.

    Where both kept raw samples, equal tasks are compared too.

    \b
    Examples:
      roofcast calibrate diff before-driver-update.json after.json
    """
    found = compare_files(before, after)
    if json:
        output.emit_json(_diff_json(found))
        return
    output.say(calibration_text.verdict(found))
    tables = (
        (found.conditions, calibration_text.condition_changes(found)),
        (found.roofs, calibration_text.parameter_changes(found.roofs)),
        (found.kinds, calibration_text.kind_changes(found.kinds)),
        (found.parameters, calibration_text.parameter_changes(found.parameters)),
    )
    for rows, table in tables:
        if rows:
            output.say()
            output.show(table)


def _diff_json(found: Comparison) -> dict[str, Any]:
    return {
        "verdict": calibration_text.verdict(found),
        "conditions": [
            {"name": name, "before": old, "after": new} for name, old, new in found.conditions
        ],
        "roofs": [
            {"name": each.name, "before": each.before, "after": each.after} for each in found.roofs
        ],
        "kinds": [{**dataclasses.asdict(each), "changed": each.changed} for each in found.kinds],
        "parameters": [
            {
                "name": each.name,
                "before": each.before,
                "after": each.after,
                "standard_errors": None if each.changed is None else each.deviation,
                "changed": each.changed,
            }
            for each in found.parameters
        ],
    }


def report(found: Calibration) -> None:
    """What a person sees at the end of a calibration."""
    profile = found.profile
    output.say(f"Measured {profile.device} with {profile.engine}; the profile is {found.path},")
    output.say(f"its raw samples are {found.journal}.")
    output.say()
    for name, value in profile.roofs.items():
        output.say(f"It sustains {profile_text.roof(name, value)}.")
    output.say(words.trust(profile))
    output.say()
    output.show(profile_text.errors(profile))
    warn(profile)
    output.say()
    output.say(f"Forecasts for {profile.device} use it from now on (--device auto).")


def warn(profile: Profile) -> None:
    """What speaks against trusting it."""
    for warning in profile.warnings:
        output.say(f"Note: {warning}")
