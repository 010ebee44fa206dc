"""Requests: when they arrive, how long their prompts and replies are, checked once for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofcast.hardware.errors import InputError
from roofcast.simulator.workload import Array


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
