"""`roofcast calibrate serving`: fit what steps add to kernels, from measured serving points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from roofcast.calibrate.serving_points.accuracy import FamilyAccuracy, accuracy
from roofcast.calibrate.serving_points.calibration import (
    Calibrated,
    calibrate_family,
    fitting_profile,
)
from roofcast.calibrate.serving_points.fit import families
from roofcast.calibrate.serving_points.points import read_points
from roofcast.calibrate.serving_points.resolve import Case, Resolver
from roofcast.hardware.errors import InputError, unknown
from roofcast.hardware.profile_store import user_folder, write, write_text
from roofcast.reports import options, output, units
from roofcast.reports.accuracy_page import accuracy_page
from roofcast.reports.tables import Column, Table


def serving(
    points: Annotated[
        Path, typer.Argument(metavar="POINTS.csv", help="Measured points, CSV or CSV.gz.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where profiles go; by default to where forecasts look for them.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Fit only this family of engines; repeatable."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write an accuracy page; holds out models and devices too."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Fit launches, host time, collectives and prompts to serving points; kernels stay as they are.

    Each family of engines is fitted together, judged on groups of points it has not seen, and written
    as one profile a device and engine, with those errors as its intervals.

    \b
    Examples:
      roofcast calibrate serving points.csv.gz
      roofcast calibrate serving points.csv --family modern --page accuracy.md
    """
    chosen = [each for each in families() if not family or each.name in family]
    for name in family or ():
        if name not in {each.name for each in families()}:
            raise unknown("family", name, [each.name for each in families()])
    folders = (points.parent / "configs", points.parent / "arch_configs")
    resolved = Resolver(folders, fitting_profile).all(read_points(points))
    cases = [each for each in resolved if isinstance(each, Case)]
    made = [
        found
        for each in chosen
        if (found := calibrate_family(each, cases, output.note)) is not None
    ]
    if not made:
        raise InputError(f"{points}: no points marked ok belong to a family that can be fitted")
    written = [
        write(profile, (out or user_folder()) / f"{profile.device}.{profile.engine}.json")
        for each in made
        for profile in each.profiles
    ]
    judged = [accuracy(each, output.note) for each in made] if page else []
    if page:
        write_text(page, accuracy_page(judged))
    if json:
        output.emit_json({"profiles": [str(path) for path in written], "families": _json(made)})
    else:
        _print(made, [str(path) for path in written], judged)


def _json(made: list[Calibrated]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.fitted.family.name,
            "points": each.fitted.rows,
            "held_out": [
                {"scheme": item.scheme, "runs": item.runs, "median_ape": item.median_ape,
                 "p90_ape": item.p90_ape, "signed_median": item.signed_median}
                for item in each.overall
            ],
            "parameters": {e.name: {"value": e.value, "standard_error": e.standard_error,
                                    "status": e.status} for e in each.fitted.estimates},
        }
        for each in made
    ]  # fmt: skip


def _print(made: list[Calibrated], written: list[str], judged: list[FamilyAccuracy]) -> None:
    rows = [(each, item) for each in made for item in each.overall]
    output.show(
        Table(
            (
                Column("family", [each.fitted.family.name for each, _ in rows], right=False),
                Column("held out", [item.scheme for _, item in rows], right=False, rank=1),
                Column("points", [f"{item.runs:,}" for _, item in rows]),
                Column("median", [units.percent(item.median_ape) for _, item in rows]),
                Column("p90", [units.percent(item.p90_ape) for _, item in rows]),
                Column("bias", [units.percent(item.signed_median) for _, item in rows]),
            )
        )
    )
    output.say()
    output.say(f"{len(written)} profiles written: {written[0]} and beside it.")
    if judged:
        output.say("The accuracy page is written.")
