"""`roofcast sweep`: many simulations or plans at once; a file keeps what is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from roofcast.calibrate.progress import Progress
from roofcast.reports import options, output, sweeps
from roofcast.reports.progress import ProgressLine
from roofcast.simulator.results_store import ResultsStore
from roofcast.simulator.sweep import Workers, run_points
from roofcast.simulator.sweep_file import read_sweep

app = options.new_app()


@app.command()
def sweep(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml", help="A scenario, and lists of what to vary.")
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where results are kept (SQLite); resumed from."
        ),
    ],
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", help="Points at once; -1: one a processor.")
    ] = -1,
    backend: Annotated[
        str, typer.Option(metavar="loky|dask|ray", help="Processes here, or a cluster.")
    ] = "loky",
    address: Annotated[
        str | None,
        typer.Option(help="The cluster's scheduler, tcp://host:8786; none starts one here."),
    ] = None,
    csv: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write results as CSV too; - for output.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run every combination of a scenario's lists; what is done already isn't run again.

    \b
    SCENARIO.toml:
      [scenario]
      model = "llama-3.1-8b"
      engine = "vllm"
      requests = 500
      ttft_slo_s = 1.0
      [sweep]
      device = ["h100-sxm-80gb", "l40s"]
      rate = [2.0, 4.0, 8.0]
    With run = "plan" above it, [scenario] is one of roofcast plan.

    \b
    Examples:
      roofcast sweep SCENARIO.toml --out results.sqlite --jobs 8
      roofcast sweep SCENARIO.toml --out results.sqlite --backend dask --address tcp://head:8786
    """
    workers = Workers(jobs, backend, address)
    asked = read_sweep(scenario)
    kind = sweeps.prepared(asked, scenario)
    started = perf_counter()
    with ResultsStore(out) as store, ProgressLine() as line:

        def done(count: int, total: int, varied: Mapping[str, Any]) -> None:
            what = ", ".join(f"{name} {value}" for name, value in varied.items())
            line(Progress("sweep", count, total, what, perf_counter() - started))

        results = run_points(asked.points, kind.run, store, workers, done)
    if json:
        output.emit_json(sweeps.rows(results))
    elif csv != "-":
        output.show(sweeps.table(results, kind), f"everything else is in {out}")
    if csv is not None:
        found = sweeps.rows(results)
        output.write_csv(found, csv, sweeps.columns(found))
