"""`roofcast predict`: decode steps over a grid of batches and contexts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from roofcast.hardware.errors import InputError
from roofcast.reports import forecast_text, options, output, words
from roofcast.reports.places import placed
from roofcast.reports.ranges import numbers
from roofcast.simulator.api import Setup, grid, setup
from roofcast.simulator.layouts import complaint
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.tables import COLUMNS, rows
from roofcast.simulator.workload import Parallelism

app = options.new_app()

_MOST_POINTS = 200_000


@app.command()
def predict(
    model: options.Model,
    *,
    device: options.Device = "auto",
    batch: Annotated[
        str, typer.Option("--batch", "-b", metavar="LIST", help="Sequences decoded together.")
    ] = "1",
    context: Annotated[
        str, typer.Option("--context", "-c", metavar="LIST", help="Tokens cached per sequence.")
    ] = "1024",
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    tp: options.Tensor = 1,
    pp: options.Pipeline = 1,
    ep: options.Expert = 1,
    dp: options.Data = 1,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    network: options.Network = None,
    peer_access: options.PeerAccess = None,
    json: options.Json = False,
    csv: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the points as CSV; - for standard output."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw roofline, curves and bounds, PNG and SVG."),
    ] = None,
) -> None:
    """Forecast decode steps: a row for each batch and context.

    LIST is 8 or 1,8,64 or a range: 1:256 doubles, 1:256:x4 multiplies, 1k:8k:+1k adds.

    \b
    Examples:
      roofcast predict llama-3.1-8b -d h100-sxm --batch 1:256 --context 1k,8k
      roofcast predict llama-3.1-70b -d h200-sxm --tp 2 --weight-dtype fp8 --json
      roofcast predict ./config.json -d mi300x --engine ideal --csv floor.csv
      roofcast predict llama-3.1-8b -d h100-sxm --batch 1:64 --context 1k,8k --figures out
    """
    if json and csv:
        raise InputError("give --json or --csv, not both")
    where = setup(
        model,
        placed(device, network, peer_access),
        engine=engine,
        profile=profile,
        parallelism=Parallelism(tp, pp, ep, dp),
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
    )
    batches, contexts = numbers(batch, "batch"), numbers(context, "context")
    if len(batches) * len(contexts) > _MOST_POINTS:
        raise InputError(
            f"{len(batches):,} batches x {len(contexts):,} contexts are more than "
            f"{_MOST_POINTS:,} points; use wider steps, or roofcast.simulator from Python"
        )
    forecast = where.decode(*grid(batches, contexts))
    if json:
        output.emit_json(rows(forecast))
    elif csv:
        output.write_csv(rows(forecast), csv, COLUMNS)
    else:
        _print(where, forecast)
    if figures is not None:
        _draw(forecast, figures)


def _draw(forecast: Forecast, folder: Path) -> None:
    """The figures that the points allow: a curve needs two of them."""
    from roofcast.reports.plotting import plot

    drawn = {"roofline": plot(forecast).roofline(), "bounds": plot(forecast).bounds()}
    if np.unique(forecast.batch).size > 1:
        drawn["throughput"] = plot(forecast).throughput()
    if np.unique(forecast.context).size > 1:
        drawn["latency"] = plot(forecast).latency()
    written = [path for name, drawing in drawn.items() for path in drawing.save(folder / name)]
    output.note(f"wrote {', '.join(str(path) for path in written)}")


def _print(where: Setup, forecast: Forecast) -> None:
    output.say(words.subject(forecast))
    output.say(words.provenance(forecast.profile))
    output.say(words.trust(forecast.profile))
    uneven = complaint(where.architecture, where.parallelism)
    for warning in (*where.architecture.warnings, *forecast.profile.warnings, uneven):
        if warning:
            output.say(f"Note: {warning}")
    output.say()
    output.show(forecast_text.points(forecast))
    output.say()
    for sentence in forecast_text.reasons(where, forecast):
        output.say(sentence)
