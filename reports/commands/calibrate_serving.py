"""`roofcast calibrate serving`: fit what steps add to kernels, from measured serving points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.to_points import read_as_points
from roofcast.calibrate.serving_points.accuracy import FamilyAccuracy, accuracy
from roofcast.calibrate.serving_points.calibration import (
    Calibrated,
    calibrate_family,
    fitting_profile,
)
from roofcast.calibrate.serving_points.fit import Family, families
from roofcast.calibrate.serving_points.points import Point, read_points
from roofcast.calibrate.serving_points.resolve import Case, Resolver
from roofcast.hardware.errors import InputError, unknown
from roofcast.hardware.profile_store import user_folder, write, write_text
from roofcast.reports import options, output, units
from roofcast.reports.accuracy_page import accuracy_page
from roofcast.reports.tables import Column, Table


def serving(
    points: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Measured points (CSV, CSV.gz), benchmarks' results."
        ),
    ],
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="What ran, for results.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", "-d", metavar="NAME", help="Where it ran.")
    ] = None,
    engine: options.Engine = None,
    tp: Annotated[int | None, typer.Option(metavar="N", min=1, show_default=False)] = None,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    out: options.ProfileFolder = None,
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
    as one profile a device and engine, with those errors as its intervals. Result files of benchmarks
    are told by their content, as `roofcast audit` does; what they don't hold comes from options, or
    from NAME.conditions.toml beside them, and only profiles of the devices they ran on are written.

    \b
    Examples:
      roofcast calibrate serving points.csv.gz
      roofcast calibrate serving points.csv --family modern --page accuracy.md
      roofcast calibrate serving sweep.jsonl runs/*.json -m llama-3.1-70b -d h100-sxm --tp 4
    """
    public = all(each.name.endswith((".csv", ".csv.gz")) for each in points)
    chosen = _families(family or (), public)
    folders = [each.parent / name for each in points for name in ("configs", "arch_configs")]
    said = Conditions(
        model=model,
        device=device,
        engine=engine,
        tp=tp,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
    )
    resolved = Resolver(tuple(dict.fromkeys(folders)), fitting_profile).all(_read(points, said))
    cases = [each for each in resolved if isinstance(each, Case)]
    made = [
        found
        for each in chosen
        if (found := calibrate_family(each, cases, output.note)) is not None
    ]
    if not made:
        names = ", ".join(str(each) for each in points)
        raise InputError(f"{names}: no points marked ok belong to a family that can be fitted")
    measured = {(case.setup.device.id, case.setup.profile.engine) for case in cases}
    written = [
        write(profile, (out or user_folder()) / f"{profile.device}.{profile.engine}.json")
        for each in made
        for profile in each.profiles
        if public or (profile.device, profile.engine) in measured
    ]
    judged = [accuracy(each, output.note) for each in made] if page else []
    if page:
        write_text(page, accuracy_page(judged))
    if json:
        output.emit_json({"profiles": [str(path) for path in written], "families": _json(made)})
    else:
        _print(made, [str(path) for path in written], judged)


def _read(paths: Sequence[Path], said: Conditions) -> tuple[Point, ...]:
    """The points of one table, with errors that name line and column, or of any benchmarks' files."""
    if len(paths) == 1 and paths[0].name.endswith((".csv", ".csv.gz")) and not said.known():
        return read_points(paths[0])
    return read_as_points(paths, said)


def _families(names: Sequence[str], public: bool) -> list[Family]:
    """The families asked for, or all; runs of one's own belong to that of their engine."""
    known = {each.name: each for each in families()}
    for name in names:
        if name not in known:
            raise unknown("family", name, known)
    chosen = [known[name] for name in names or known]
    return chosen if public else [replace(each, sources="") for each in chosen]


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
    more = " and beside it" if len(written) > 1 else ""
    count = "1 profile" if len(written) == 1 else f"{len(written)} profiles"
    output.say(f"{count} written: {written[0]}{more}.")
    if judged:
        output.say("The accuracy page is written.")
