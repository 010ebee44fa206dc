"""`roofcast calibrate`: measure the attached device and fit the profile that forecasts then use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofcast.calibrate.calibration import calibrate as measure
from roofcast.reports import options, output
from roofcast.reports.commands.calibrate_kernels import kernels
from roofcast.reports.commands.calibrate_results import diff, merge, report, show
from roofcast.reports.commands.calibrate_serving import serving
from roofcast.reports.progress import ProgressLine

app = options.new_app()
for _command in (show, merge, diff, kernels, serving):
    app.command(_command.__name__)(_command)


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
    mode: Annotated[
        str,
        typer.Option(
            metavar="eager|compiled|graph",
            help="How decode steps are issued: kernel by kernel, by torch.compile, as CUDA graphs.",
        ),
    ] = "eager",
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
      roofcast calibrate --device cuda --mode graph --out h100.json
      roofcast calibrate show
    """
    if context.invoked_subcommand is not None:
        return
    with ProgressLine() as listener:
        found = measure(device, quick=quick, mode=mode, out=out, resume=resume, listener=listener)
    if json:
        output.emit_json(found.as_json())
    else:
        report(found)
