"""`roofcast profile`: the profiles that forecasts can use."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from roofcast.hardware.errors import unknown
from roofcast.hardware.profile import Profile
from roofcast.hardware.profile_store import read, shipped, user_folder
from roofcast.reports import options, output, profile_text, units, words
from roofcast.reports.tables import Column, Table

app = options.new_app()


@app.callback(invoke_without_command=True)
def profile(context: typer.Context) -> None:
    """List profiles (as without a command), or show one with the origin and error of every parameter.

    \b
    Examples:
      roofcast profile list
      roofcast profile show h100-sxm.vllm
      roofcast profile show ./my-calibration.json --json
    """
    if context.invoked_subcommand is None:
        list_profiles()


@app.command("list")
def list_profiles(json: options.Json = False) -> None:
    """List this user's own profiles, then the shipped ones."""
    found = [(path, owner, read(path)) for path, owner in _known()]
    if json:
        output.emit_json(
            [{"path": str(path), "owner": owner, **_brief(each)} for path, owner, each in found]
        )
    elif found:
        output.show(_table([(owner, each) for _, owner, each in found]))
    else:
        output.say("No profiles yet; `roofcast calibrate` measures one of this machine.")


@app.command("show")
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A listed profile, or a file.", show_default=False)
    ],
    json: options.Json = False,
) -> None:
    """Show a profile: its errors by kernel and by step, and where every parameter comes from."""
    chosen = _find(name)
    if json:
        output.emit_json(dataclasses.asdict(chosen))
        return
    output.say(words.provenance(chosen))
    output.say(words.trust(chosen))
    for warning in chosen.warnings:
        output.say(f"Note: {warning}")
    output.say()
    if chosen.held_out:
        output.show(profile_text.errors(chosen))
        output.say()
    output.show(profile_text.parameters(chosen))
    for key, value in chosen.roofs.items():
        output.say(f"measured: {profile_text.roof(key, value)}")
    for key, curve in chosen.curves.items():
        output.say(f"curve {key}: {len(curve.points)} points over {curve.axis}, {curve.origin}")


def _known() -> list[tuple[Path, str]]:
    own = sorted(user_folder().glob("*.json")) if user_folder().is_dir() else []
    return [*((path, "own") for path in own), *((path, "shipped") for path in shipped())]


def _find(name: str) -> Profile:
    path = Path(name)
    if path.suffix == ".json" or path.is_file():
        return read(path)
    by_name = {path.stem: path for path, _ in reversed(_known())}
    if name not in by_name:
        raise unknown("profile", name, by_name, "`roofcast profile list` lists them")
    return read(by_name[name])


def _brief(profile: Profile) -> dict[str, object]:
    errors = dataclasses.asdict(profile.held_out[0]) if profile.held_out else None
    return {
        "name": profile.name,
        "device": profile.device,
        "engine": profile.engine,
        "origin": profile.origin,
        "created": profile.created,
        "held_out": errors,
    }


def _table(found: list[tuple[str, Profile]]) -> Table:
    profiles = [each for _, each in found]
    return Table(
        (
            Column("device", [each.device for each in profiles], right=False),
            Column("engine", [each.engine for each in profiles], right=False),
            Column("whose", [owner for owner, _ in found], right=False),
            Column("made", [each.created[:10] or units.UNKNOWN for each in profiles], right=False),
            Column("median step error", [_error(each) for each in profiles]),
            Column("origin", [each.origin for each in profiles], right=False, rank=1),
        )
    )


def _error(profile: Profile) -> str:
    errors = words.step_errors(profile)
    return units.UNKNOWN if errors is None else units.percent(errors.median_ape)
