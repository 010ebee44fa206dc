"""`roofcast calibrate kernels`: fit what kernels achieve, from tables of measured kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from roofcast.calibrate.kernel_tables import calibrate_kernels
from roofcast.calibrate.kernel_tables.calibration import JUDGED, OTHER_HALF
from roofcast.calibrate.kernel_tables.sources import tabled, usual_source
from roofcast.calibrate.kernel_tables.steps import with_steps_of
from roofcast.hardware import profile_store
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.profile import Profile
from roofcast.reports import options, output, units, words
from roofcast.reports.tables import Column, Table

_ALL: Final = "all"


def kernels(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Tables: tidy CSV, or aiconfigurator's parquet.")
    ],
    *,
    device: Annotated[
        list[str],
        typer.Option(
            "--device", "-d", metavar="NAME", help="Fit this device; repeatable; all: all in DIR."
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", "-e", metavar="NAME", help="Only this engine.", show_default=False
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Who measured the tables; by default the folder's name, or aiconfigurator-core.",
            show_default=False,
        ),
    ] = None,
    out: options.ProfileFolder = None,
    json: options.Json = False,
) -> None:
    """Fit bandwidth, peaks and fixed times of kernels to tables; steps stay as they were measured.

    One profile for each engine in the tables, judged on shapes that its fit has not seen. What a
    profile of the same name knows of whole steps is kept: `calibrate serving` fits that anew.
    Parquet tables need the parquet extra.

    \b
    Examples:
      roofcast calibrate kernels tables --device h200-sxm
      roofcast calibrate kernels tables --device all --out profiles --source "our lab, 2026-05"
      roofcast calibrate kernels aiconfigurator/systems/data -d b200-sxm -e trtllm
    """
    to = out or profile_store.user_folder()
    made: list[Profile] = []
    written: list[Path] = []
    for each in _devices(folder, device):
        found = calibrate_kernels(folder, each, engine, source or usual_source(folder))
        made += found
        written += [_write(profile, to) for profile in found]
        output.note(f"{each.id}: {', '.join(profile.engine for profile in found)}")
    if json:
        output.emit_json({"profiles": [str(path) for path in written], "held_out": _rows(made)})
        return
    output.show(_table(made))
    output.say()
    if len(written) == 1:
        output.say(f"The profile is {written[0]}.")
    else:
        output.say(f"{len(written)} profiles written: {written[0]} and beside it.")


def _devices(folder: Path, names: list[str]) -> list[Accelerator]:
    wanted = tabled(folder) if _ALL in names else names
    return list(dict.fromkeys(find(name) for name in wanted))


def _write(profile: Profile, folder: Path) -> Path:
    """Beside what is known of the device's steps: in the folder's own profile, else in any."""
    path = folder / f"{profile.device}.{profile.engine}.json"
    earlier = profile_store.read(path) if path.exists() else None
    if earlier is None and profile.engine in profile_store.engines(profile.device):
        earlier = profile_store.choose(profile.device, profile.engine)
    return profile_store.write(with_steps_of(profile, earlier) if earlier else profile, path)


def _rows(made: list[Profile]) -> list[dict[str, Any]]:
    return [
        {
            "device": profile.device,
            "engine": profile.engine,
            "kernel": each.scheme.removeprefix(JUDGED).removesuffix(OTHER_HALF),
            "runs": each.runs,
            "median_ape": each.median_ape,
            "p90_ape": each.p90_ape,
            "signed_median": each.signed_median,
        }
        for profile in made
        for each in profile.held_out
    ]


def _table(made: list[Profile]) -> Table:
    rows = _rows(made)
    return Table(
        (
            Column("device", [row["device"] for row in rows], right=False, rank=1),
            Column("engine", [row["engine"] for row in rows], right=False),
            Column(
                "kernels, other half of the shapes", [row["kernel"] for row in rows], right=False
            ),
            Column("points", [f"{row['runs']:,}" for row in rows]),
            Column("median", [units.percent(row["median_ape"]) for row in rows]),
            Column("p90", [units.percent(row["p90_ape"]) for row in rows]),
            Column("bias", [words.signed(row["signed_median"]) for row in rows]),
        )
    )
