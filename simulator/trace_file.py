"""Traces of requests: CSV with a header, or JSON Lines, gzipped or not.

    arrival_s,input_tokens,output_tokens
    0.0,1200,180
    0.31,880,402

Columns that are no part of a request are ignored, so that an engine's own log serves as a trace.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from roofcast.hardware.errors import InputError, bad_file
from roofcast.simulator.requests import Requests, requests

REQUIRED = ("arrival_s", "input_tokens", "output_tokens")
OPTIONAL = ("priority", "cached_tokens")
_ALIASES = {"arrival_s": "queued_s"}
"""vLLM's name of the moment when a request reaches its scheduler."""

Row = tuple[str, Mapping[str, Any]]


def read_trace(path: str | Path) -> Requests:
    """Requests of a trace. Raises FileFormatError that names the line and the column."""
    path = Path(path)
    columns = read_columns(path, REQUIRED, OPTIONAL)
    if not columns["arrival_s"]:
        raise bad_file(path, "holds no request")
    try:
        return requests(**columns)
    except InputError as error:
        raise bad_file(path, str(error)) from None


def read_columns(
    path: Path, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, list[float]]:
    """Columns of numbers by name; an optional one is there where the first row has it."""
    columns: dict[str, list[float]] = {name: [] for name in required}
    for number, (where, row) in enumerate(_rows(path, required)):
        if number == 0:
            columns.update({name: [] for name in optional if name in row})
        for name, values in columns.items():
            values.append(_value(path, where, name, row))
    return columns


def _value(path: Path, where: str, name: str, row: Mapping[str, Any]) -> float:
    given = row.get(name, row.get(_ALIASES.get(name, name)))
    if given is None:
        raise bad_file(path, f"{name} is missing", where=where)
    try:
        if isinstance(given, bool):
            raise ValueError
        return float(given)
    except (TypeError, ValueError):
        raise bad_file(path, f"{name} must be a number, not {given!r}", where=where) from None


def _rows(path: Path, required: Sequence[str]) -> Iterator[Row]:
    """Rows with where they stand, as the file's name says: .csv or .jsonl, with or without .gz."""
    inner = path.with_suffix("") if path.suffix == ".gz" else path
    try:
        with _open(path) as file:
            if inner.suffix in (".jsonl", ".ndjson"):
                yield from _json_rows(path, file)
            else:
                yield from _csv_rows(path, file, required)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise bad_file(path, f"cannot be read ({reason})") from None


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8-sig")
    return path.open(newline="", encoding="utf-8-sig")


def _csv_rows(path: Path, file: TextIO, required: Sequence[str]) -> Iterator[Row]:
    reader = csv.DictReader(file)
    header = reader.fieldnames or []
    missing = [n for n in required if n not in header and _ALIASES.get(n) not in header]
    if missing:
        given = f"has {', '.join(header)}" if header else "is empty"
        raise bad_file(path, f"needs the columns {', '.join(required)}; it {given}", where="header")
    for row in reader:
        yield f"line {reader.line_num}", row


def _json_rows(path: Path, file: TextIO) -> Iterator[Row]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise bad_file(path, "is no JSON", where=f"line {number}") from None
        if not isinstance(row, dict):
            raise bad_file(path, "must be an object", where=f"line {number}")
        yield f"line {number}", row
