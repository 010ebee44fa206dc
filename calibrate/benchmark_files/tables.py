"""Tables in text: lines of a file one by one, and the rows of a markdown table among them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from roofcast.calibrate.benchmark_files.text import unusable

_LONGEST = 2**20


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that aren't blank, whatever ends them; a byte-order mark is no text."""
    with path.open("rb") as raw:
        marked = raw.read(2) in (b"\xff\xfe", b"\xfe\xff")
        raw.seek(0)
        encoding = "utf-16" if marked else "utf-8-sig"
        with io.TextIOWrapper(raw, encoding=encoding, errors="replace") as file:
            number = 0
            while line := file.readline(_LONGEST):
                number += 1
                if len(line) == _LONGEST:
                    raise unusable(path, "a line of over a million characters", f"line {number}")
                if line.strip():
                    yield number, line.rstrip("\n")


def markdown_rows(
    lines: Iterable[tuple[int, str]], wanted: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of every table whose header has the wanted columns; everything else is passed over."""
    header: list[str] = []
    for number, line in lines:
        cells = _cells(line)
        if not cells or set(line) <= set("|-: "):
            header = header if cells else []
        elif all(name in cells for name in wanted):
            header = cells
        elif header and len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True))


def _cells(line: str) -> list[str]:
    stripped = line.strip()
    if not stripped.startswith("|") or not stripped.endswith("|"):
        return []
    return [cell.strip() for cell in stripped[1:-1].split("|")]
