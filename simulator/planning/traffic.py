"""What is asked of a service: how many requests, how long, how soon answered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from roofcast.hardware.errors import InputError
from roofcast.simulator.trace_file import read_trace

_Z95, _Z99 = 1.6449, 2.3263  # normal quantiles
_MOST_SKEWED = math.exp(_Z95**2 / 2)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or of replies: their mean, standard deviation, and one in a hundred's."""

    mean: float
    deviation: float = 0.0
    longest: float = 0.0

    def __post_init__(self) -> None:
        if not self.mean >= 1:
            raise InputError(f"a mean length must be at least 1 token, not {self.mean:g}")
        if self.longest < self.mean:
            object.__setattr__(self, "longest", self.mean)

    @property
    def variation(self) -> float:
        """Standard deviation over mean."""
        return self.deviation / self.mean


def uniform(low: float, high: float) -> Lengths:
    """Every length from low to high equally often; deviation (high - low) / sqrt(12).

    >>> uniform(200, 600).mean, round(uniform(200, 600).deviation, 1)
    (400.0, 115.5)
    """
    if not 1 <= low <= high:
        raise InputError(
            f"a range of lengths runs from at least 1 upwards, not {low:g} to {high:g}"
        )
    return Lengths((low + high) / 2, (high - low) / math.sqrt(12), low + 0.99 * (high - low))


def lognormal(mean: float, p95: float) -> Lengths:
    """Log-normal lengths of a mean and a 95th percentile, as prompts and replies usually are.

    ln p95 = m + 1.645 s and ln mean = m + s^2 / 2 give s = 1.645 - sqrt(1.645^2 - 2 ln(p95 / mean)).

    >>> lengths = lognormal(1000, 3000)
    >>> round(lengths.deviation), round(lengths.longest)
    (1176, 5661)
    """
    if not mean < p95 <= _MOST_SKEWED * mean:
        raise InputError(
            f"a 95th percentile lies between the mean and {_MOST_SKEWED:.2f} times it, "
            f"not at {p95:g} for a mean of {mean:g}"
        )
    s = _Z95 - math.sqrt(_Z95**2 - 2 * math.log(p95 / mean))
    m = math.log(mean) - s**2 / 2
    return Lengths(mean, mean * math.sqrt(math.expm1(s**2)), math.exp(m + _Z99 * s))


def observed(tokens: ArrayLike) -> Lengths:
    """The lengths of a sample.

    >>> observed([100, 300])
    Lengths(mean=200.0, deviation=100.0, longest=298.0)
    """
    values = np.asarray(tokens, dtype=np.float64)
    return Lengths(float(values.mean()), float(values.std()), float(np.quantile(values, 0.99)))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests to serve: `rate_per_s` arriving at random, or `users` with one request each in flight.

    `prefix_hits` is the share of prompt tokens found in a prefix cache.
    """

    prompt: Lengths
    reply: Lengths
    rate_per_s: float | None = None
    users: float | None = None
    prefix_hits: float = 0.0

    def __post_init__(self) -> None:
        if (self.rate_per_s is None) == (self.users is None):
            raise InputError("give requests per second or concurrent users, one of the two")
        amount = self.rate_per_s if self.users is None else self.users
        if amount is None or not 0 < amount < math.inf:
            raise InputError(f"traffic must be above 0, not {amount:g}")
        if not 0 <= self.prefix_hits < 1:
            raise InputError(
                f"the share of prompts found in a prefix cache is at least 0 and below 1, "
                f"not {self.prefix_hits:g}"
            )

    @property
    def amount(self) -> float:
        """Requests per second, or users."""
        return float(self.rate_per_s if self.users is None else self.users)  # type: ignore[arg-type]

    @property
    def decode_context(self) -> float:
        """Mean tokens cached when a token is decoded: prompt + E[reply^2] / (2 E[reply]).

        Long replies decode for longer, so they count for more than their number.
        """
        square = self.reply.mean**2 + self.reply.deviation**2
        return self.prompt.mean + square / (2 * self.reply.mean)

    @property
    def longest(self) -> float:
        """Tokens that one request may need in all."""
        return self.prompt.longest + self.reply.longest


def from_trace(path: str | Path, prefix_hits: float = 0.0) -> Traffic:
    """The traffic of a trace: its rate over its span, its lengths."""
    trace = read_trace(path)
    span = float(trace.arrival_s[-1] - trace.arrival_s[0])
    if len(trace) < 2 or span <= 0:
        raise InputError(f"{path}: a rate needs at least two requests at different times")
    cached = float(trace.cached_tokens.sum() / trace.input_tokens.sum())
    return Traffic(
        observed(trace.input_tokens),
        observed(trace.output_tokens),
        rate_per_s=(len(trace) - 1) / span,
        prefix_hits=prefix_hits or cached,
    )


@dataclass(frozen=True, slots=True)
class Objectives:
    """Limits that hold for `percentile` per cent of requests; None where anything goes."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    percentile: float = 95.0

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"the objective {name} must be above 0, not {value:g}")
        if not 50 <= self.percentile < 100:
            raise InputError(
                f"a percentile of objectives lies from 50 to below 100, not at {self.percentile:g}"
            )
