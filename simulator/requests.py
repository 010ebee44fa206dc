"""Requests: when they arrive, how long their prompts and replies are."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofcast.hardware.errors import InputError, bad_file, unknown
from roofcast.simulator.workload import Array

REQUIRED = ("arrival_s", "input_tokens", "output_tokens")
OPTIONAL = ("priority", "cached_tokens")
PROCESSES = ("poisson", "gamma", "constant")


@dataclass(frozen=True, slots=True)
class Requests:
    """Arrival times in seconds (not falling) and whole token counts, one entry a request.

    Lower `priority` is served first; `cached_tokens` of the prompt are found in a prefix cache.
    """

    arrival_s: Array
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    priority: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival_s)


def requests(
    arrival_s: ArrayLike,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    priority: ArrayLike = 0,
    cached_tokens: ArrayLike = 0,
) -> Requests:
    """Checked requests; scalars apply to all. Raises InputError that names the first bad one."""
    arrivals = np.atleast_1d(np.asarray(arrival_s, dtype=np.float64))
    if arrivals.size == 0:
        raise InputError("the trace holds no request")
    columns = {
        "input_tokens": (input_tokens, 1),
        "output_tokens": (output_tokens, 1),
        "priority": (priority, None),
        "cached_tokens": (cached_tokens, 0),
    }
    whole = {name: _whole(name, v, arrivals.size, low) for name, (v, low) in columns.items()}
    if not np.all(np.isfinite(arrivals)) or np.any(arrivals < 0):
        first = int(np.argmax(~np.isfinite(arrivals) | (arrivals < 0)))
        raise InputError(f"request {first}: arrival_s must be at least 0, not {arrivals[first]:g}")
    if np.any(np.diff(arrivals) < 0):
        first = int(np.argmax(np.diff(arrivals) < 0)) + 1
        raise InputError(
            f"request {first} arrives at {arrivals[first]:g} s, before the one above it "
            f"({arrivals[first - 1]:g} s): sort the trace by arrival_s"
        )
    if np.any(whole["cached_tokens"] >= whole["input_tokens"]):
        raise InputError(
            "cached_tokens must be smaller than input_tokens: the last token is computed"
        )
    return Requests(arrivals, **whole)


def arrivals(process: str, rate_per_s: float, count: int, seed: int, cv: float = 1.0) -> Array:
    """Arrival times of `count` requests: poisson, gamma (coefficient of variation `cv`), constant.

    Raises UnknownNameError for another process, InputError for a rate or cv that isn't positive.
    """
    if process not in PROCESSES:
        raise unknown("arrival process", process, PROCESSES)
    if rate_per_s <= 0 or cv <= 0:
        raise InputError(f"rate and cv must be positive, not {rate_per_s:g} and {cv:g}")
    shape = {"poisson": 1.0, "gamma": cv**-2, "constant": 0.0}[process]
    if not shape:
        return np.arange(count) / rate_per_s
    gaps = np.random.default_rng(seed).gamma(shape, 1.0 / (shape * rate_per_s), count)
    return np.cumsum(gaps) - gaps[0]


def read_trace(path: str | Path) -> Requests:
    """Requests from a CSV with the columns arrival_s, input_tokens, output_tokens.

    Raises FileFormatError that names the line and the column.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or []
            missing = [name for name in REQUIRED if name not in header]
            if missing:
                raise bad_file(path, f"needs the columns {', '.join(REQUIRED)}", where="header")
            wanted = [*REQUIRED, *(name for name in OPTIONAL if name in header)]
            columns: dict[str, list[float]] = {name: [] for name in wanted}
            for row in reader:
                for name in wanted:
                    columns[name].append(_number(path, reader.line_num, name, row[name]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise bad_file(path, f"cannot be read as CSV ({error})") from None
    return requests(**columns)


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise bad_file(
            path, f"{name} must be a number, not {text!r}", where=f"line {line}"
        ) from None


def _whole(name: str, values: ArrayLike, count: int, least: int | None) -> NDArray[np.int64]:
    given = np.asarray(values, dtype=np.float64)
    array = np.array(np.broadcast_to(given, (count,)))
    bad = ~np.isfinite(array) | (array != np.floor(array))
    if least is not None:
        bad |= array < least
    if np.any(bad):
        first = int(np.argmax(bad))
        limit = "" if least is None else f" of at least {least}"
        raise InputError(
            f"request {first}: {name} must be a whole number{limit}, not {array[first]:g}"
        )
    return array.astype(np.int64)
