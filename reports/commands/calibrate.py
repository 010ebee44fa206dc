"""`roofcast calibrate`: measure the attached device and fit the profile that forecasts then use."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from roofcast.calibrate.calibration import ENGINE, Calibration
from roofcast.calibrate.calibration import calibrate as measure
from roofcast.hardware.detect import attached
from roofcast.hardware.profile import Profile
from roofcast.hardware.profile_store import path_for, read
from roofcast.reports import options, output, profile_text, words
from roofcast.reports.commands.calibrate_kernels import kernels
from roofcast.reports.commands.calibrate_serving import serving
from roofcast.reports.progress import ProgressLine

app = options.new_app()
app.command("kernels")(kernels)
app.command("serving")(serving)


@app.callback(invoke_without_command=True)
def calibrate(
    context: typer.Context,
    *,
    device: Annotated[
        str, typer.Option("--device", "-d", metavar="auto|cpu|cuda|mps", help="What to measure.")
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the profile goes; by default to where forecasts look for this device.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", "-q", help="Three minutes at most, with wider errors.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted calibration.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Measure this machine with a real Torch decoder, fit a profile, judge it on unseen runs.

    An interrupted calibration keeps what it measured; the same command with --resume goes on.

    \b
    Examples:
      roofcast calibrate --quick
      roofcast calibrate --device cuda --out h100.json
      roofcast calibrate show
    """
    if context.invoked_subcommand is not None:
        return
    with ProgressLine() as listener:
        found = measure(device, quick=quick, out=out, resume=resume, listener=listener)
    if json:
        output.emit_json(found.as_json())
    else:
        report(found)


@app.command("show")
def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A profile; by default the calibration of the attached device.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show a calibration: conditions, errors by scheme, fitted parameters."""
    profile = read(file or path_for(attached("auto").id, ENGINE))
    if json:
        output.emit_json(dataclasses.asdict(profile))
        return
    output.say(words.provenance(profile))
    output.say(", ".join(f"{name} {value}" for name, value in profile.conditions.items()))
    output.say()
    output.show(profile_text.errors(profile))
    output.say()
    output.show(profile_text.parameters(profile))
    _warn(profile)


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
    _warn(profile)
    output.say()
    output.say(f"Forecasts for {profile.device} use it from now on (--device auto).")


def _warn(profile: Profile) -> None:
    for warning in profile.warnings:
        output.say(f"Note: {warning}")
