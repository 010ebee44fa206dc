"""Traffic made up from a few numbers: how requests arrive and how long they are.

    gaps of mean 1 / rate:  constant; exponential (Poisson arrivals); gamma with a coefficient of
    variation cv, burstier than Poisson above 1

A closed loop has no arrival times: the next request comes when one is answered (see `serve`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from roofcast.hardware.errors import InputError, unknown
from roofcast.simulator.planning.traffic import lognormal
from roofcast.simulator.requests import Requests, requests
from roofcast.simulator.workload import Array

CLOSED = "closed"
PROCESSES = ("poisson", "gamma", "constant", CLOSED)
DISTRIBUTIONS = ("fixed", "uniform", "lognormal")
_FORMS = "1000, 500:1500 (uniform), 1000,p95=3000 or lognormal:1000:0.6 (mean, cv)"
_MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts: `fixed` (n), `uniform` (least, most), `lognormal` (mean, cv)."""

    distribution: str
    first: float
    second: float = 0.0

    @property
    def mean(self) -> float:
        """Mean tokens.

        >>> lengths("uniform:500:1500", "input").mean
        1000.0
        """
        uniform = self.distribution == "uniform"
        return (self.first + self.second) / 2 if uniform else self.first

    def draw(self, rng: Generator, count: int) -> NDArray[np.int64]:
        """So many token counts, at least 1 each."""
        if self.distribution == "fixed":
            return np.full(count, int(self.first))
        if self.distribution == "uniform":
            return rng.integers(int(self.first), int(self.second) + 1, count)
        sigma = math.sqrt(math.log1p(self.second**2))
        drawn = rng.lognormal(math.log(self.first) - sigma**2 / 2, sigma, count)
        return np.maximum(np.rint(drawn), 1).astype(np.int64)


def lengths(text: str, name: str) -> Lengths:
    """Lengths as they are typed: 1000, 500:1500 or uniform:500:1500, 1000,p95=3000, lognormal:1000:0.6.

    >>> lengths("lognormal:1000:0.6", "input"), lengths("500:1500", "input").distribution
    (Lengths(distribution='lognormal', first=1000.0, second=0.6), 'uniform')
    >>> round(lengths("1000,p95=3000", "input").second, 3)  # the cv that puts it there
    1.176
    """
    written = text.replace(" ", "")
    if match := re.fullmatch(r"([\d.]+),p95=([\d.]+)", written):
        written = f"lognormal:{match[1]}:{_cv(*map(_number, match.groups()))}"
    elif re.fullmatch(r"\d+:\d+", written):
        written = f"uniform:{written}"
    kind, *numbers = ["fixed", written] if re.fullmatch(r"\d+", written) else written.split(":")
    values = [_number(number) for number in numbers]
    wanted = 1 if kind == "fixed" else 2
    if kind not in DISTRIBUTIONS or len(values) != wanted or not all(map(math.isfinite, values)):
        raise InputError(f"{name} {text!r} is no length; write {_FORMS}")
    found = Lengths(kind, *values)
    if not 1 <= found.first <= _MOST or found.second > _MOST or found.second < 0:
        raise InputError(f"{name} {text!r}: lengths are from 1 to {_MOST:,} tokens")
    if kind == "uniform" and found.second < found.first:
        raise InputError(f"{name} {text!r}: the least is larger than the most")
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _cv(mean: float, p95: float) -> float:
    """The coefficient of variation of a log-normal distribution with that 95th percentile."""
    return lognormal(mean, p95).variation if mean >= 1 and math.isfinite(p95) else math.nan


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many requests of which lengths, arriving how; the same seed gives the same requests.

    The share `hits` of every prompt is found in a prefix cache, all but its last token at most.
    """

    count: int
    input_tokens: Lengths
    output_tokens: Lengths
    process: str = "poisson"
    rate_per_s: float = 1.0
    cv: float = 1.0
    hits: float = 0.0
    seed: int = 0

    def requests(self) -> Requests:
        """Draw the requests.

        Arrivals, prompts and replies have random streams of their own: a change of one leaves the
        others as they are.
        """
        if self.count < 1:
            raise InputError(f"requests must be at least 1, not {self.count}")
        if self.seed < 0:
            raise InputError(f"seed must be at least 0, not {self.seed}")
        if not 0 <= self.hits < 1:
            raise InputError(
                "the share of a prompt found in a prefix cache is at least 0 and below 1, "
                f"not {self.hits:g}"
            )
        times, prompts, replies = np.random.default_rng(self.seed).spawn(3)
        read = self.input_tokens.draw(prompts, self.count)
        return requests(
            arrivals(self.process, self.rate_per_s, self.count, times, self.cv),
            read,
            self.output_tokens.draw(replies, self.count),
            cached_tokens=np.floor(self.hits * read),
        )


def arrivals(process: str, rate_per_s: float, count: int, rng: Generator, cv: float = 1.0) -> Array:
    """Arrival times of `count` requests, the first at 0: constant, poisson, gamma; zeros for closed.

    Raises UnknownNameError for another process, InputError for a rate or cv that isn't positive.
    """
    if process not in PROCESSES:
        raise unknown("arrival process", process, PROCESSES)
    if not (rate_per_s > 0 and cv > 0 and math.isfinite(rate_per_s) and math.isfinite(cv)):
        raise InputError(f"rate and cv must be positive, not {rate_per_s:g} and {cv:g}")
    if process == CLOSED:
        return np.zeros(count)
    if process == "constant":
        return np.arange(count) / rate_per_s
    shape = cv**-2 if process == "gamma" else 1.0
    gaps = rng.gamma(shape, 1.0 / (shape * rate_per_s), count)
    return np.asarray(np.cumsum(gaps) - gaps[0])
