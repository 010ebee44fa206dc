"""The only place that writes to standard output: sentences, tables, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from roofcast.hardware.profile_store import write_text
from roofcast.reports.tables import Table

_READABLE = 100
_EVERYTHING = "everything else is in --json"


def say(text: str = "") -> None:
    """A paragraph: wrapped on a terminal, one line into a pipe."""
    typer.echo(textwrap.fill(text, min(_width(), _READABLE)) if _to_person() else text)


def note(text: str) -> None:
    """A paragraph on standard error, so that piped output stays clean."""
    typer.echo(text, err=True)


def show(table: Table, rest: str = _EVERYTHING) -> None:
    """A table; `rest` says where the columns are that a narrow terminal has no room for."""
    if not _to_person():
        typer.echo(table.plain())
        return
    fitted, dropped = table.fitted(_width())
    head, _, body = fitted.plain().partition("\n")
    if fitted.headed and _may_style():
        head = typer.style(head, bold=True)
    typer.echo(f"{head}\n{body}" if body else head)
    if dropped:
        say(f"(no room for {', '.join(reversed(dropped))}: {rest})")


def emit_json(document: object) -> None:
    """A document on standard output. NaN has no place in JSON, so callers turn it into null."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def write_csv(rows: Sequence[Mapping[str, Any]], path: str, columns: Iterable[str]) -> None:
    """Rows as CSV in a file, or on standard output where the path is "-"; None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if path == "-":
        typer.echo(text.getvalue(), nl=False)
    else:
        write_text(Path(path), text.getvalue())


def keep(path: Path, text: str) -> None:
    """Write a file whole or not at all, and say so on standard error."""
    write_text(path, text)
    note(f"wrote {path}")


def _to_person() -> bool:
    return sys.stdout.isatty()


def _may_style() -> bool:
    """Whether bold is welcome: https://no-color.org, and terminals that know no escapes."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width() -> int:
    return shutil.get_terminal_size((80, 24)).columns
