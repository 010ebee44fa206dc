"""`roofcast validate`: forecasts of measured serving points, and how far they were off."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from roofcast.calibrate.serving_points.errors import Errors
from roofcast.calibrate.serving_points.points import METRICS, Point
from roofcast.calibrate.serving_points.validate import COLUMNS, ValidationResult
from roofcast.calibrate.serving_points.validate import validate as judge
from roofcast.hardware.errors import unknown
from roofcast.reports import options, output, units
from roofcast.reports.tables import Column, Table

app = options.new_app()

GROUPS = ("gpu", "engine", "model", "source")


@app.command()
def validate(
    points: Annotated[
        Path,
        typer.Argument(metavar="POINTS.csv", help="Measured points, CSV or CSV.gz."),
    ],
    *,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write one line per point and metric here; - prints."),
    ] = None,
    use: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Only rows marked so in the column use: ok,caution."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only rows whose source contains this.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="|".join(GROUPS), help="Group the errors.")] = "gpu",
    json: options.Json = False,
) -> None:
    """Forecast measured serving points without looking at what was measured, then compare.

    A row's architecture comes from its config_file, looked up in configs/ beside the file, or else
    from its model. Every row gets a forecast with an 80 % interval, or the reason why not.

    \b
    Examples:
      roofcast validate points.csv.gz
      roofcast validate points.csv --use ok --by engine --out predictions.csv
      roofcast validate points.csv --json
    """
    if by not in GROUPS:
        raise unknown("grouping", by, GROUPS)
    wanted = None if use is None else {word.strip() for word in use.split(",")}
    result = judge(
        points,
        keep=lambda point: (
            (wanted is None or point.use in wanted) and (source is None or source in point.source)
        ),
    )
    if out is not None:
        output.write_csv([asdict(record) for record in result.records], out, COLUMNS)
    if json:
        output.emit_json(describe(result, by))
    elif out != "-":
        _print(result, by)


def describe(result: ValidationResult, group: str) -> dict[str, Any]:
    """What `--json` prints: errors by metric and group as fractions, refusals, impossible points."""
    return {
        "points": len(result.points),
        "errors": {
            metric: {"all": _plain(result.errors(metric)), **_grouped(result, metric, group)}
            for metric in METRICS
            if result.errors(metric).rows
        },
        "refused": result.refused,
        "too_fast": list(result.too_fast),
    }


def _grouped(result: ValidationResult, metric: str, group: str) -> dict[str, Any]:
    return {name: _plain(errors) for name, errors in by_group(result, metric, group) if errors.rows}


def by_group(result: ValidationResult, metric: str, group: str) -> list[tuple[str, Errors]]:
    """Errors of one metric for every value of a column of the points, in order."""

    def of(name: str) -> Callable[[Point], bool]:
        return lambda point: getattr(point, group) == name

    names = sorted({str(getattr(point, group)) for point in result.points})
    return [(name, result.errors(metric, of(name))) for name in names]


def _plain(errors: Errors) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in asdict(errors).items()}


def _print(result: ValidationResult, group: str) -> None:
    for metric in METRICS:
        total = result.errors(metric)
        if not total.rows:
            continue
        found = [each for each in by_group(result, metric, group) if each[1].rows]
        output.say(f"{metric}:")
        output.show(table(group, [*found, ("all", total)]), rest="see --json")
        output.say()
    for reason, count in result.refused.items():
        output.say(f"Not forecast ({count:,}): {reason}")
    output.say(
        f"{len(result.too_fast):,} of {len(result.points):,} points are faster than their floor: "
        + (", ".join(result.too_fast[:8]) or "none")
        + (", ..." if len(result.too_fast) > 8 else "")
    )


def table(group: str, rows: list[tuple[str, Errors]]) -> Table:
    """Errors of every group, one row each; the bias is the signed median."""
    errors = [each for _, each in rows]
    return Table(
        (
            Column(group, [name for name, _ in rows], right=False),
            Column("rows", [f"{each.rows:,}" for each in errors]),
            Column("median", [units.percent(each.median_ape) for each in errors]),
            Column("mean", [units.percent(each.mean_ape) for each in errors], rank=2),
            Column("p90", [units.percent(each.p90_ape) for each in errors]),
            Column("bias", [units.percent(each.signed_median) for each in errors], rank=1),
            Column("in 80 % interval", [units.percent(each.coverage) for each in errors], rank=3),
        )
    )
