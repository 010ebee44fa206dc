"""Where a report goes, and its points as CSV and Parquet."""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roofcast.hardware.errors import InputError
from roofcast.hardware.profile_store import write_text
from roofcast.simulator.tables import COLUMNS

SUFFIXES = {
    "html": ".html",
    "markdown": ".md",
    "json": ".json",
    "csv": ".csv",
    "parquet": ".parquet",
}
Rows = Sequence[Mapping[str, Any]]

_LONGEST = 80
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def format_of(path: Path | None, wanted: str | None) -> str:
    """The format that was asked for, else that of the file's ending, else HTML.

    >>> format_of(Path("a.md"), None), format_of(None, None), format_of(Path("a.md"), "csv")
    ('markdown', 'html', 'csv')
    """
    if wanted is not None:
        return wanted
    endings = {**{ending: name for name, ending in SUFFIXES.items()}, ".htm": "html"}
    if path is None or not path.suffix or path.is_dir():
        return "html"
    if path.suffix.lower() not in endings:
        raise InputError(
            f"no format has the ending {path.suffix!r}; use {', '.join(SUFFIXES.values())}, "
            "or give --format"
        )
    return endings[path.suffix.lower()]


def target(out: Path | None, name: str, kind: str) -> Path:
    """The file to write: `out` itself, or inside it, named after the model, where it is a folder.

    A name can come from a file that someone else wrote, so nothing of it but letters, digits, dots
    and hyphens gets into a path.
    """
    if out is not None and not out.is_dir():
        return out
    return (out or Path()) / f"{slug(name)}{SUFFIXES[kind]}"


def slug(name: str) -> str:
    """A name as one harmless part of a path.

    >>> slug("meta-llama/Llama-3.1-8B"), slug("../../etc/passwd"), slug("  "), slug("con")
    ('meta-llama-Llama-3.1-8B', 'etc-passwd', 'report', 'con-report')
    """
    kept = re.sub(r"[^A-Za-z0-9.-]+", "-", name)
    kept = re.sub(r"\.{2,}", ".", kept).strip(".-")[:_LONGEST].strip(".-")
    reserved = re.fullmatch(r"(con|prn|aux|nul|(com|lpt)\d)(\..*)?", kept, re.IGNORECASE)
    return f"{kept}-report" if reserved else kept or "report"


def csv_text(rows: Rows) -> str:
    """The points as CSV; None is an empty cell.

    A text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_parquet(rows: Rows, path: Path) -> Path:
    """The points as Parquet, replaced in one step; InputError where pyarrow is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            "Parquet needs pyarrow: `pip install 'roofcast[parquet]'`, or --format csv"
        ) from None
    table = pyarrow.table({name: [row[name] for row in rows] for name in COLUMNS})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            whole = Path(folder) / path.name
            parquet.write_table(table, whole)
            os.replace(whole, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def write(path: Path, text: str) -> Path:
    """A text file, replaced in one step."""
    return write_text(path, text)
