"""`roofcast report`: one file to pass on: verdict, figures, tables, where every number comes from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from roofcast.hardware.errors import InputError
from roofcast.reports import options, output
from roofcast.reports.document import files
from roofcast.reports.gathering import Options, gather
from roofcast.reports.ranges import numbers
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.workload import Parallelism

if TYPE_CHECKING:
    from roofcast.reports.document.blocks import Document
    from roofcast.reports.sections.asked import Asked
    from roofcast.reports.sections.cases import Case

app = options.new_app()

_MOST_DEVICES, _MOST_POINTS = 6, 400


@app.command()
def report(
    model: options.Model,
    *,
    device: Annotated[
        str,
        typer.Option(
            "--device", "-d", metavar="LIST", help="Up to six devices, as in h100-sxm,mi300x."
        ),
    ] = "auto",
    batch: Annotated[
        str, typer.Option("--batch", "-b", metavar="LIST", help="Sequences decoded together.")
    ] = "1,8,32,128",
    context: Annotated[
        str, typer.Option("--context", "-c", metavar="LIST", help="Tokens cached per sequence.")
    ] = "1k,8k",
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    tp: options.Tensor = 1,
    pp: options.Pipeline = 1,
    ep: options.Expert = 1,
    dp: options.Data = 1,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE|DIR", help="Where it goes; named after the model by default."),
    ] = None,
    format: Annotated[  # noqa: A002  # the option is --format
        Literal["html", "markdown", "json", "csv", "parquet"] | None,
        typer.Option("--format", "-f", help="By the ending of --out, else html."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="SCENARIO.toml", help="Add the plan of a scenario."),
    ] = None,
    audit: Annotated[
        list[Path] | None,
        typer.Option(metavar="RESULT", help="Audit a benchmark's result file; repeatable."),
    ] = None,
    before: Annotated[
        list[Path] | None,
        typer.Option(metavar="RESULT", help="With --change: a run before it; repeatable."),
    ] = None,
    change: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="Compare --before with --audit: what was changed."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="PROFILE", help="Add a calibration, with residuals of its samples."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE=USD", help="Rent an hour, or a purchase: DEVICE=30000/4y."),
    ] = None,
    kwh: Annotated[
        float, typer.Option(metavar="USD", help="Electricity of bought devices, per kWh.")
    ] = 0.12,
    json: options.Json = False,
) -> None:
    """Write a report on one model and one or more devices.

    HTML is one file with everything inside and sliders to try; Markdown goes into a pull request;
    CSV and Parquet hold the points. With a plan, results of benchmarks or a calibration it gets a
    section on each.

    \b
    Examples:
      roofcast report llama-3.1-8b -d h100-sxm
      roofcast report llama-3.1-70b -d h100-sxm,h200-sxm,mi300x --tp 4 --out report.html
      roofcast report llama-3.1-70b -d h100-sxm,b200-sxm --tp 2 --engine vllm --format markdown
      roofcast report llama-3.1-8b -d h100-sxm --audit vllm.json --plan chat.toml
    """
    where = [
        setup(
            model,
            name,
            engine=engine,
            profile=profile,
            parallelism=Parallelism(tp, pp, ep, dp),
            weight_dtype=weight_dtype,
            kv_dtype=kv_dtype,
        )
        for name in _names(device)
    ]
    stated = {"tp": tp, "pp": pp, "ep": ep, "dp": dp, "engine": engine}
    stated = {name: value for name, value in stated.items() if value != 1}
    wanted = Options(plan, audit or (), before or (), change, calibration, price or (), kwh)
    asked = gather(
        wanted, model, where, {**stated, "weight_dtype": weight_dtype, "kv_dtype": kv_dtype}
    )
    built = build(where, numbers(batch, "batch"), numbers(context, "context"))
    if json:
        output.emit_json(_described(built, asked))
        return
    kind = files.format_of(out, format)
    output.say(f"Wrote {write(built, asked, out, kind)}.")


def build(where: Sequence[Setup], batches: Sequence[int], contexts: Sequence[int]) -> list[Case]:
    """The cases of a report; InputError for more points than anyone reads."""
    from roofcast.reports.sections import cases

    if len(batches) * len(contexts) > _MOST_POINTS:
        raise InputError(
            f"{len(batches):,} batches x {len(contexts):,} contexts are more than the "
            f"{_MOST_POINTS} that anyone reads in a report; `roofcast predict --csv` takes any grid"
        )
    return cases.build(where, batches, contexts)


def write(built: Sequence[Case], asked: Asked, out: Path | None, kind: str) -> Path:
    """The report in a file; returns its path."""
    from roofcast.reports.sections.cases import all_rows

    path = files.target(out, built[0].where.architecture.name, kind)
    if kind == "parquet":
        return files.write_parquet(all_rows(built), path)
    return files.write(path, _text(built, asked, kind))


def _text(built: Sequence[Case], asked: Asked, kind: str) -> str:
    import json

    from roofcast.reports.document import html, markdown
    from roofcast.reports.sections.cases import all_rows

    if kind == "csv":
        return files.csv_text(all_rows(built))
    if kind == "json":
        return json.dumps(_described(built, asked), indent=2, allow_nan=False) + "\n"
    renderers = {"html": html.render, "markdown": markdown.render}
    return renderers[kind](_document(built, asked))


def _described(built: Sequence[Case], asked: Asked) -> dict[str, Any]:
    from roofcast.reports.document.as_json import describe

    return describe(_document(built, asked))


def _document(built: Sequence[Case], asked: Asked) -> Document:
    from importlib.metadata import version

    from roofcast.reports.sections.order import document

    return document(built, version("roofcast"), asked=asked)


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not 1 <= len(names) <= _MOST_DEVICES:
        raise InputError(f"give 1 to {_MOST_DEVICES} devices, not {len(names)}: {text!r}")
    return names
