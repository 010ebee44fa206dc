"""JSON as benchmarks write it: one object, several in a row, one a line, NaN and Infinity in them.

Memory is bounded. A small file is read whole. A large one is read by lines where each is an object
of its own, and else after its lists of single requests are cut out.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from roofcast.calibrate.benchmark_files.text import decode, printable, unusable

WHOLE_BYTES = 16 * 2**20
"""Largest text that is decoded in one piece, and longest line."""

_FIRST_LINE_BYTES = 2**20
_PER_REQUEST = (
    "input_lens|output_lens|ttfts|itls|start_times|errors|generated_texts|requests|request_records"
    "|samples|outputs|output_details"
)
_LISTS = re.compile(rb'"(?:' + _PER_REQUEST.encode() + rb')"\s*:\s*(?=[\[{])')
_MARKS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON value of a file; `where` says which, "" where it is the only one."""

    where: str
    value: object


def documents(path: Path) -> Iterator[Document]:
    """Every JSON value of a file, in order; FileFormatError where one is malformed or cut off."""
    if path.stat().st_size <= WHOLE_BYTES:
        yield from _in_text(decode(path.read_bytes(), path), path)
    elif _is_by_lines(path):
        yield from _by_lines(path)
    else:
        seen = path.stat()
        text = _without_lists(path, seen.st_size, seen.st_mtime_ns)
        yield from _in_text(decode(text, path), path)


def objects(path: Path) -> Iterator[Document]:
    """Every JSON object of a file, those inside a list as well."""
    for document in documents(path):
        if isinstance(document.value, list):
            for index, item in enumerate(document.value):
                if isinstance(item, dict):
                    yield Document(_join(document.where, f"[{index}]"), item)
        elif isinstance(document.value, dict):
            yield document


def _join(first: str, second: str) -> str:
    return f"{first} {second}".strip()


def _in_text(text: str, path: Path) -> Iterator[Document]:
    start = _skip(text, 0)
    count = 0
    while start < len(text):
        value, end = _value(text, start, path)
        following = _skip(text, end)
        several = count > 0 or following < len(text)
        count += 1
        yield Document(f"object {count}" if several else "", value)
        start = following


def _skip(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _value(text: str, start: int, path: Path) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        _refuse(error, text, path)
    except RecursionError:
        raise unusable(path, "JSON nested too deeply to be a benchmark's result") from None
    except ValueError as error:  # a whole number of more digits than Python converts
        raise unusable(path, f"not usable JSON: {error}") from None


def _refuse(error: json.JSONDecodeError, text: str, path: Path) -> NoReturn:
    cut_off = not text[error.pos :].strip() or error.msg.startswith("Unterminated")
    where = f"line {text.count(chr(10), 0, error.pos) + 1}"
    if cut_off:
        raise unusable(path, "ends in the middle of a JSON value: truncated?", where) from None
    found = printable(text[error.pos : error.pos + 20])
    raise unusable(path, f"not valid JSON: {error.msg.lower()} at {found!r}", where) from None


def _is_by_lines(path: Path) -> bool:
    """Whether the first line is an object of its own."""
    with path.open("rb") as file:
        first = file.readline(_FIRST_LINE_BYTES)
    if not first.endswith(b"\n"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _by_lines(path: Path) -> Iterator[Document]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(WHOLE_BYTES):
            number += 1
            if len(line) == WHOLE_BYTES:
                raise unusable(path, f"a line of over {WHOLE_BYTES >> 20} MiB", f"line {number}")
            text = decode(line, path)
            start = _skip(text, 0)
            if start < len(text):
                yield Document(f"line {number}", _value(text, start, path)[0])


@lru_cache(maxsize=1)
def _without_lists(path: Path, size: int, changed_ns: int) -> bytes:
    """The file with `null` for each list of single requests; kept while size and time stay the same.

    Inside a JSON string every quote has a backslash before it, so that a key as `_LISTS` has it can
    only be a key.
    """
    del changed_ns  # part of the key only
    kept: list[bytes] = []
    total = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        start = 0
        while start < len(raw):
            match = _LISTS.search(raw, start)
            end = match.end() if match else len(raw)
            total += end - start
            if total > WHOLE_BYTES:
                raise unusable(
                    path,
                    f"{size / 1e6:,.0f} MB, more than {WHOLE_BYTES / 1e6:.0f} MB of them other than "
                    "lists of single requests: too large for a benchmark's result",
                )
            kept.append(raw[start:end])
            if match is None:
                break
            kept.append(b"null")
            start = _end_of_value(raw, end, path)
    return b"".join(kept)


def _end_of_value(raw: mmap.mmap, start: int, path: Path) -> int:
    """Just after the bracket that closes the one at `start`."""
    depth = 0
    for mark in _MARKS.finditer(raw, start):
        first = raw[mark.start()]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
            if depth == 0:
                return mark.end()
    raise unusable(path, "ends in the middle of a JSON value: truncated?")
