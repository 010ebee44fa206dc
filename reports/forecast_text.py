"""A forecast as a table for people, and why its points are what they are."""

from __future__ import annotations

import numpy as np

from roofcast.reports import units, words
from roofcast.reports.tables import Column, Table
from roofcast.simulator.api import Setup
from roofcast.simulator.insight import batching
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.tables import rows


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
