"""What was measured: a task that can be named, and its raw samples.

Raw samples are kept and statistics come late: a median, an interval or a spread is computed where it is
needed, so that a better statistic can be applied to an old calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

Fact = str | float | int | bool

STATE = "state"
"""Kind of an entry without samples: what a GPU said of its clocks and power while it was busy."""

FAILED = "failed: "
"""How the outcome of a task begins that went wrong in a way nobody expected."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to measure. `kind` names the measuring function, `facts` are its arguments.

    >>> Task("gemm", {"rows": 1, "dtype": "bf16"}).key
    'gemm rows=1 dtype=bf16'
    """

    kind: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name under which a journal keeps it; equal tasks have equal keys."""
        return " ".join([self.kind, *(f"{name}={value}" for name, value in self.facts.items())])

    def whole(self, name: str) -> int:
        """A fact that is a whole number."""
        return int(self.facts[name])

    def text(self, name: str) -> str:
        """A fact that is a word."""
        return str(self.facts[name])


@dataclass(frozen=True, slots=True)
class Measurement:
    """Raw samples of one task: seconds per call, in the order taken.

    `at_s` is when it ended, in seconds since the calibration began. `steady` says that the warm-up
    came to rest. `others` is the share of the machine's processor time that went to other processes
    while it ran, `stolen` the share the hypervisor withheld (NaN where unreadable). `outcome` is
    "ok", or why there are no samples (out of memory, `FAILED`). The samples are those of all `visits`;
    `ends` says of each visit when it ended and how many samples it brought.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    kind: str
    facts: Mapping[str, Fact]
    samples_s: tuple[float, ...]
    at_s: float = 0.0
    steady: bool = True
    others: float = math.nan
    stolen: float = math.nan
    outcome: str = "ok"
    visits: int = 1
    ends: tuple[tuple[float, int], ...] = ()

    @property
    def by_visit(self) -> tuple[tuple[float, tuple[float, ...]], ...]:
        """When each visit ended, and its samples; all as one where that wasn't kept."""
        if sum(count for _, count in self.ends) != len(self.samples_s):
            return ((self.at_s, self.samples_s),)
        found, start = [], 0
        for at_s, count in self.ends:
            found.append((at_s, self.samples_s[start : start + count]))
            start += count
        return tuple(found)

    @property
    def task(self) -> Task:
        """What was measured."""
        return Task(self.kind, self.facts)

    @property
    def median_s(self) -> float:
        """Median of the samples."""
        return median(self.samples_s)

    @property
    def spread(self) -> float:
        """Distance between the 10 % and the 90 % quantile, over the median."""
        return spread(self.samples_s)


def joined(one: Measurement, other: Measurement) -> Measurement:
    """Two measurements of one task as one, with the samples of both; shares are the higher ones."""
    if not (one.samples_s and other.samples_s):
        return one if one.samples_s else other
    return replace(
        one,
        samples_s=one.samples_s + other.samples_s,
        at_s=max(one.at_s, other.at_s),
        steady=one.steady and other.steady,
        others=max(one.others, other.others),
        stolen=max(one.stolen, other.stolen),
        visits=one.visits + other.visits,
        ends=tuple((at_s, len(samples)) for e in (one, other) for at_s, samples in e.by_visit),
    )


def median(samples: Sequence[float]) -> float:
    """Median; NaN of nothing.

    >>> median([3.0, 1.0, 2.0, 10.0])
    2.5
    """
    return quantile(samples, 0.5)


def quantile(samples: Sequence[float], share: float) -> float:
    """The `share` quantile, linear between order statistics (Hyndman and Fan's type 7)."""
    if not samples:
        return math.nan
    ordered = sorted(samples)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def spread(samples: Sequence[float]) -> float:
    """(q90 - q10) / median: what a quiet machine keeps below a few per cent.

    >>> round(spread([1.0, 1.0, 1.0, 2.0, 1.0]), 2)
    0.6
    """
    middle = median(samples)
    return (quantile(samples, 0.9) - quantile(samples, 0.1)) / middle if middle else math.nan


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of the median, free of any distribution: order statistics.

    Ranks n/2 -+ 0.98 sqrt(n), the normal form of the sign test (Conover, Practical Nonparametric
    Statistics, 3.2). Below six samples no such interval exists: the extremes are returned.

    >>> median_interval([float(i) for i in range(1, 101)])
    (40.0, 61.0)
    """
    ordered = sorted(samples)
    count = len(ordered)
    if count < 6:
        return (ordered[0], ordered[-1]) if ordered else (math.nan, math.nan)
    half = 0.98 * math.sqrt(count)
    low = max(math.floor(count / 2 - half), 1)
    high = min(math.ceil(count / 2 + half) + 1, count)
    return ordered[low - 1], ordered[high - 1]
