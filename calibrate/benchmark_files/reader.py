"""From a file of unknown format to records: the format is told by content, never by name."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from roofcast.calibrate.benchmark_files import (
    aiperf,
    aiperf_requests,
    guidellm,
    inferencex,
    llama_batched_bench,
    llama_bench,
    ollama,
    points_csv,
    sglang_one_batch,
    sglang_serving,
    trtllm_bench,
    vllm_latency,
    vllm_serve,
)
from roofcast.calibrate.benchmark_files.documents import objects
from roofcast.calibrate.benchmark_files.formats import Format, Opening
from roofcast.calibrate.benchmark_files.record import Record
from roofcast.calibrate.benchmark_files.text import decode, printable, unusable

FORMATS: Final[tuple[Format, ...]] = tuple(
    module.FORMAT
    for module in (
        sglang_serving,
        inferencex,
        vllm_serve,
        vllm_latency,
        sglang_one_batch,
        aiperf_requests,
        aiperf,
        guidellm,
        trtllm_bench,
        llama_batched_bench,
        llama_bench,
        ollama,
        points_csv,
    )
)
"""Every format, in the order in which they are tried."""

MOST_RECORDS: Final = 100_000
_OPENING_BYTES = 64 * 2**10


def read(path: str | Path) -> tuple[Record, ...]:
    """The records of a benchmark's result file, in its order.

    FileFormatError of one line for a file that is missing, empty, cut off, of an unknown format, or
    holds no result.
    """
    path = Path(path)
    found: list[Record] = []
    try:
        for record in detect(path).records(path):
            found.append(replace(record, file=printable(str(path), 240)))
            if len(found) > MOST_RECORDS:
                raise unusable(path, f"holds more than {MOST_RECORDS:,} results")
    except OSError as error:
        raise unusable(path, f"cannot be read: {error.strerror or error}") from None
    if not found:
        raise unusable(path, "holds no result")
    return tuple(found)


def read_all(paths: Iterable[str | Path]) -> tuple[Record, ...]:
    """The records of several files."""
    return tuple(record for path in paths for record in read(path))


def detect(path: Path) -> Format:
    """The format of a file by its content; FileFormatError says what was looked for."""
    opening = _open(path)
    for candidate in FORMATS:
        if candidate.recognises(opening):
            return candidate
    looked_for = "; ".join(f"{each.name} ({each.looked_for})" for each in FORMATS)
    raise unusable(path, f"no benchmark's result that is known; looked for {looked_for}")


def _open(path: Path) -> Opening:
    try:
        if path.is_dir():
            raise unusable(path, "is a folder; give the result files in it")
        with path.open("rb") as file:
            raw = file.read(_OPENING_BYTES)
        if raw.startswith(b"\x1f\x8b"):
            with gzip.open(path) as packed:
                raw = packed.read(_OPENING_BYTES)
    except FileNotFoundError:
        raise unusable(path, "no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise unusable(path, f"cannot be read: {reason}") from None
    text = _text(raw, path)
    if not text.strip():
        raise unusable(path, "is empty")
    return Opening(text, _first_object(path) if text.lstrip().startswith(("{", "[")) else None)


def _text(raw: bytes, path: Path) -> str:
    """The opening as text; a character cut in half at its end is left out."""
    for cut in range(4):
        try:
            return raw[: len(raw) - cut].decode("utf-8-sig")
        except UnicodeDecodeError:
            continue
    return decode(raw, path)


def _first_object(path: Path) -> Mapping[str, object]:
    first = next(objects(path), None)
    found = first.value if first is not None else {}
    return found if isinstance(found, dict) else {}
