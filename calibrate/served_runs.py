"""Runs that an engine served for real, request by request, beside their simulation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roofcast.hardware.errors import bad_file
from roofcast.simulator.batching import Served
from roofcast.simulator.trace_file import read_columns
from roofcast.simulator.workload import Array

_COLUMNS = ("arrival_s", "output_tokens", "first_token_s", "last_token_s")
_COUNTS = ("running", "waiting")
QUANTILES = {"p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """When requests came and were answered, in seconds on one clock, one entry a request."""

    arrival_s: Array
    output_tokens: Array
    first_token_s: Array
    last_token_s: Array

    @property
    def metrics(self) -> dict[str, Array]:
        """TTFT, TPOT and end-to-end latency, as vLLM defines them."""
        more = np.maximum(self.output_tokens - 1, 1)
        spent = self.last_token_s - self.first_token_s
        return {
            "ttft_s": self.first_token_s - self.arrival_s,
            "tpot_s": np.where(self.output_tokens > 1, spent / more, np.nan),
            "e2e_s": self.last_token_s - self.arrival_s,
        }

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens from the first arrival to the last token."""
        duration = self.last_token_s.max() - self.arrival_s.min()
        return float(self.output_tokens.sum() / duration)


@dataclass(frozen=True, slots=True)
class Agreement:
    """One quantity, measured and simulated."""

    metric: str
    statistic: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Simulated over measured, less one."""
        return self.simulated / self.measured - 1.0


def read_run(path: Path) -> MeasuredRun:
    """A CSV or JSON Lines of arrival_s (or queued_s), output_tokens, first_token_s, last_token_s."""
    columns = read_columns(path, _COLUMNS)
    run = MeasuredRun(*(np.array(columns[name]) for name in _COLUMNS))
    if not run.arrival_s.size:
        raise bad_file(path, "holds no request")
    if np.any(run.last_token_s < run.first_token_s) or np.any(run.first_token_s < run.arrival_s):
        raise bad_file(path, "a request is answered before it arrives, or ends before it begins")
    return run


def agreements(served: Served, run: MeasuredRun) -> tuple[Agreement, ...]:
    """Throughput, and quantiles of the latencies."""
    simulated = {"ttft_s": served.ttft_s, "tpot_s": served.tpot_s, "e2e_s": served.e2e_s}
    rates = (run.output_tokens_per_s, served.output_tokens_per_s)
    found = [Agreement("output_tokens_per_s", "mean", *rates)]
    for metric, values in run.metrics.items():
        for name, at in QUANTILES.items():
            both = (np.nanquantile(values, at), np.nanquantile(simulated[metric], at))
            found.append(Agreement(metric, name, float(both[0]), float(both[1])))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Counts:
    """Running and waiting requests at `time_s`."""

    time_s: Array
    running: Array
    waiting: Array


def read_counts(path: Path) -> Counts:
    """A CSV of t (seconds), running, waiting: what an engine's log says every second."""
    columns = read_columns(path, ("t", *_COUNTS))
    if not columns["t"]:
        raise bad_file(path, "holds no row")
    return Counts(*(np.array(columns[name]) for name in ("t", *_COUNTS)))


def simulated_counts(served: Served, time_s: Array) -> Counts:
    """The same from a simulation, at given times after its first arrival."""
    steps, start = served.timeline, float(served.requests.arrival_s[0])
    at = np.searchsorted(steps.end_s, time_s + start)
    known = at < len(steps.end_s)
    at = np.minimum(at, len(steps.end_s) - 1)
    idle = ~known | (steps.begin_s[at] > time_s + start)
    return Counts(
        time_s,
        np.where(idle, 0, steps.running[at]).astype(float),
        np.where(idle, 0, steps.waiting[at]).astype(float),
    )


def count_agreements(counts: Counts, served: Served) -> tuple[Agreement, ...]:
    """Mean running and waiting over time, and the mean distance of the two curves."""
    ours = simulated_counts(served, counts.time_s)
    found = []
    for name in _COUNTS:
        measured, simulated = getattr(counts, name), getattr(ours, name)
        found.append(Agreement(name, "mean", float(measured.mean()), float(simulated.mean())))
    return tuple(found)
