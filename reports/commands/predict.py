"""`roofcast predict`: decode steps over a grid of batches and contexts."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from roofcast.hardware.errors import InputError
from roofcast.reports import options, output, units, words
from roofcast.reports.ranges import numbers
from roofcast.reports.tables import Column, Table
from roofcast.simulator.api import Setup, grid, setup
from roofcast.simulator.insight import batching
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
    json: options.Json = False,
    csv: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the points as CSV; - for standard output."),
    ] = None,
) -> None:
    """Forecast decode steps: a row for each batch and context.

    LIST is 8 or 1,8,64 or a range: 1:256 doubles, 1:256:x4 multiplies, 1k:8k:+1k adds.

    \b
    Examples:
      roofcast predict llama-3.1-8b -d h100-sxm --batch 1:256 --context 1k,8k
      roofcast predict llama-3.1-70b -d h200-sxm --tp 2 --weight-dtype fp8 --json
      roofcast predict ./config.json -d mi300x --engine ideal --csv floor.csv
    """
    if json and csv:
        raise InputError("give --json or --csv, not both")
    where = setup(
        model,
        device,
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


def _print(where: Setup, forecast: Forecast) -> None:
    output.say(words.subject(forecast))
    output.say(words.provenance(forecast.profile))
    output.say(words.trust(forecast.profile))
    for warning in (*where.architecture.warnings, *forecast.profile.warnings):
        output.say(f"Note: {warning}")
    output.say()
    output.show(points(forecast))
    output.say()
    for sentence in reasons(where, forecast):
        output.say(sentence)


def points(forecast: Forecast) -> Table:
    """The table for people: one row a point."""
    found = rows(forecast)
    beyond = np.ravel(forecast.extrapolates)

    def column(header: str, cells: list[str], rank: int = 0, *, right: bool = True) -> Column:
        return Column(header, cells, right, rank)

    columns = [
        column("batch", [f"{row['batch']:,}" for row in found]),
        column("context", [f"{row['context']:,}" for row in found]),
        column("step", [units.seconds(row["step_time_s"]) for row in found]),
        column("80 % range", [_range(row) for row in found], 6),
        column("tok/s", [units.significant(row["tokens_per_s"]) for row in found]),
        column("/user", [units.significant(row["tokens_per_s_per_user"]) for row in found], 3),
        column("/device", [units.significant(row["tokens_per_s_per_device"]) for row in found], 4),
        column("bound", [row["bound"] for row in found], 1, right=False),
        column("MBU", [units.percent(row["mbu"]) for row in found], 5),
        column("MFU", [units.percent(row["mfu"]) for row in found], 7),
        column(
            "memory" if forecast.devices == 1 else "memory/device",
            [units.data(row["memory_bytes"]) for row in found],
            2,
        ),
        column("fits", ["yes" if row["fits"] else "NO" for row in found], right=False),
    ]
    if all(row["step_time_low_s"] in (None, row["step_time_s"]) for row in found):
        columns = [each for each in columns if each.header != "80 % range"]
    if np.any(beyond):
        columns.append(column("", ["extrapolated" if out else "" for out in beyond], right=False))
    return Table(tuple(columns))


def reasons(where: Setup, forecast: Forecast) -> list[str]:
    """Why: the bound of the first and the last point, how far batching pays, what is extrapolated."""
    shape = forecast.step_time_s.shape
    batches = np.ravel(np.broadcast_to(forecast.batch, shape))
    contexts = np.ravel(np.broadcast_to(forecast.context, shape))
    said = [
        f"Batch {batches[i]:,.0f}, context {contexts[i]:,.0f} is {words.why(forecast, i)}."
        for i in sorted({0, forecast.step_time_s.size - 1})
    ]
    ends = sorted({float(contexts.min()), float(contexts.max())})
    said += [f"At context {c:,.0f}, {words.batching(batching(where.decode(1, c)))}." for c in ends]
    beyond = words.extrapolation(forecast)
    return [*said, beyond] if beyond else said


def _range(row: dict[str, object]) -> str:
    low, high = row["step_time_low_s"], row["step_time_high_s"]
    if not isinstance(low, float) or not isinstance(high, float):
        return units.UNKNOWN
    return units.seconds_range(low, high)
