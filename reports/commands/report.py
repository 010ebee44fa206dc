"""`roofcast report`: one file to pass on: verdict, figures, tables, where every number comes from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from roofcast.hardware.errors import InputError
from roofcast.reports import options, output
from roofcast.reports.document import files
from roofcast.reports.ranges import numbers
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.workload import Parallelism

if TYPE_CHECKING:
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
        Literal["html", "markdown", "csv", "parquet"] | None,
        typer.Option("--format", "-f", help="By the ending of --out, else html."),
    ] = None,
) -> None:
    """Write a report on one model and one or more devices.

    HTML is one file with everything inside and sliders to try; Markdown goes into a pull request;
    CSV and Parquet hold the points.

    \b
    Examples:
      roofcast report llama-3.1-8b -d h100-sxm
      roofcast report llama-3.1-70b -d h100-sxm,h200-sxm,mi300x --tp 4 --out report.html
      roofcast report llama-3.1-70b -d h100-sxm,b200-sxm --tp 2 --engine vllm --format markdown
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
    kind = files.format_of(out, format)
    path = write(where, numbers(batch, "batch"), numbers(context, "context"), out, kind)
    output.say(f"Wrote {path}.")


def write(
    where: Sequence[Setup],
    batches: Sequence[int],
    contexts: Sequence[int],
    out: Path | None,
    kind: str,
) -> Path:
    """The report of some setups in a file; returns its path."""
    from roofcast.reports.sections import cases

    if len(batches) * len(contexts) > _MOST_POINTS:
        raise InputError(
            f"{len(batches):,} batches x {len(contexts):,} contexts are more than the "
            f"{_MOST_POINTS} that anyone reads in a report; `roofcast predict --csv` takes any grid"
        )
    built = cases.build(where, batches, contexts)
    path = files.target(out, where[0].architecture.name, kind)
    if kind == "parquet":
        return files.write_parquet(cases.all_rows(built), path)
    text = files.csv_text(cases.all_rows(built)) if kind == "csv" else _text(built, kind)
    return files.write(path, text)


def _text(built: Sequence[Case], kind: str) -> str:
    from importlib.metadata import version

    from roofcast.reports.document import html, markdown
    from roofcast.reports.sections.order import document

    renderers = {"html": html.render, "markdown": markdown.render}
    return renderers[kind](document(built, version("roofcast")))


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not 1 <= len(names) <= _MOST_DEVICES:
        raise InputError(f"give 1 to {_MOST_DEVICES} devices, not {len(names)}: {text!r}")
    return names
