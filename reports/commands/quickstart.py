"""`roofcast quickstart`: measure, forecast, draw; the command the README begins with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from roofcast.calibrate.calibration import Calibration
from roofcast.calibrate.calibration import calibrate as measure
from roofcast.reports import options, output, profile_text, units, words
from roofcast.reports.progress import ProgressLine
from roofcast.reports.quickstart import CONTEXT, ROOM, Case, draw, gpu_cases, local_case
from roofcast.reports.tables import Column, Table
from roofcast.simulator.tables import rows

app = options.new_app()

_LARGE_BATCH = 64


@app.command()
def quickstart(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the figures go.")] = Path(
        "roofcast-out"
    ),
    device: Annotated[
        str, typer.Option("--device", "-d", metavar="auto|cpu|cuda|mps", help="What to measure.")
    ] = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted measurement.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Measure this machine, forecast models on it and on GPUs, draw the figures.

    Takes a few minutes, most of them for the measurement.

    \b
    Examples:
      roofcast quickstart
      roofcast quickstart --out figures --device cpu
    """
    with ProgressLine() as listener:
        calibration = measure(device, quick=True, resume=resume, listener=listener)
    local, gpus = local_case(calibration, device), gpu_cases()
    figures = draw(calibration, local, gpus, out)
    if json:
        output.emit_json(describe(calibration, [local, *gpus], figures))
    else:
        _print(calibration, local, gpus, figures)


def describe(
    calibration: Calibration, cases: Sequence[Case], figures: Sequence[Path]
) -> dict[str, object]:
    """What `--json` prints."""
    return {
        **calibration.as_json(),
        "verdicts": [case.verdict for case in cases],
        "forecasts": [row for case in cases for row in rows(case.single)],
        "figures": [str(path) for path in figures],
    }


def _print(
    calibration: Calibration, local: Case, gpus: Sequence[Case], figures: Sequence[Path]
) -> None:
    output.say(f"This machine: {local.where.device}")
    output.say(words.provenance(calibration.profile))
    roofs = calibration.profile.roofs.items()
    if roofs:
        output.say(
            f"It sustains {', '.join(profile_text.roof(name, value) for name, value in roofs)}."
        )
    output.say(local.verdict)
    for warning in calibration.profile.warnings:
        output.say(f"Note: {warning}")
    output.say()
    output.say(
        f"GPUs at context {CONTEXT:,}, each model in bf16 over as few devices as hold "
        f"{ROOM[0]} sequences of {ROOM[1]:,} tokens:"
    )
    output.say()
    output.show(table([local, *gpus]), rest="see --json")
    output.say()
    for profile in {case.where.profile.name: case.where.profile for case in gpus}.values():
        output.say(words.provenance(profile))
        output.say(words.trust(profile))
    output.say()
    output.say(f"Figures: {', '.join(str(path) for path in figures if path.suffix == '.png')}")
    output.say(f"Held-out error of {calibration.profile.device}: {_held_out(calibration)}.")


def table(cases: Sequence[Case]) -> Table:
    """A row a case: batch 1, a larger batch, how far batching pays and memory allows."""
    large = [case.where.decode(_LARGE_BATCH, CONTEXT) for case in cases]
    fitting = [bool(each.memory.fits) for each in large]

    def rate(value: float, fits: bool = True) -> str:
        return units.significant(value) if fits else "does not fit"

    return Table(
        (
            Column("model", [case.where.architecture.name for case in cases], right=False),
            Column("device", [case.where.device.id for case in cases], right=False),
            Column("profile", [_engine(case) for case in cases], right=False, rank=4),
            Column("TP", [str(case.where.parallelism.tensor) for case in cases]),
            Column("batch 1", [units.seconds(float(case.single.step_time_s)) for case in cases]),
            Column("tok/s", [rate(float(case.single.tokens_per_s)) for case in cases]),
            Column(
                f"tok/s at batch {_LARGE_BATCH}",
                [
                    rate(float(each.tokens_per_s), ok)
                    for each, ok in zip(large, fitting, strict=True)
                ],
            ),
            Column("bound", [str(case.single.bound) for case in cases], right=False, rank=3),
            Column("pays to batch", [words.about(case.batching.batch) for case in cases], rank=1),
            Column("memory holds", [words.about(case.batching.limit) for case in cases], rank=2),
        )
    )


def _engine(case: Case) -> str:
    return "floor" if case.where.profile.engine == "ideal" else case.where.profile.engine


def _held_out(calibration: Calibration) -> str:
    errors = calibration.held_out
    return words.held_out(errors) if errors else "no run was held out"
