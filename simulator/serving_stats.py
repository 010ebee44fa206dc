"""What a served trace amounts to: latencies, throughput, goodput, and the same over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.errors import InputError
from roofcast.simulator.batching import Served
from roofcast.simulator.requests import Requests
from roofcast.simulator.scheduler import Policy
from roofcast.simulator.step_time import StepTimes
from roofcast.simulator.workload import Array

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over many requests: mean, quantiles by name, largest; NaN where there is none."""

    mean: float
    quantiles: Mapping[str, float]
    largest: float

    @classmethod
    def of(cls, values: Array) -> Spread:
        """The spread of the values that are numbers."""
        known = values[~np.isnan(values)]
        if not known.size:
            return cls(np.nan, dict.fromkeys(QUANTILES, np.nan), np.nan)
        found = np.quantile(known, list(QUANTILES.values()))
        return cls(
            float(known.mean()),
            dict(zip(QUANTILES, found.tolist(), strict=True)),
            float(known.max()),
        )


@dataclass(frozen=True, slots=True)
class Objectives:
    """What a request must keep to count as good; None does not matter."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s)):
            if limit is not None and not limit > 0:
                raise InputError(f"an objective for {name} must be positive, not {limit:g} s")

    def __bool__(self) -> bool:
        return self.ttft_s is not None or self.tpot_s is not None

    def met(self, served: Served) -> NDArray[np.bool_]:
        """Which requests keep every objective; a reply of one token has no TPOT to miss."""
        good = np.ones(len(served.requests), dtype=bool)
        if self.ttft_s is not None:
            good &= served.ttft_s <= self.ttft_s
        if self.tpot_s is not None:
            good &= ~(served.tpot_s > self.tpot_s)
        return good

    def check(self, requests: Requests, policy: Policy, times: StepTimes) -> None:
        """Raise InputError for an objective that no request could keep, even alone on the machine."""
        prompt = int((requests.input_tokens - requests.cached_tokens).min())
        alone = policy.request_s + times(0, 0.0, [(0, min(prompt, policy.token_budget))])
        step = times(1, prompt)
        if self.ttft_s is not None and self.ttft_s < alone:
            raise InputError(
                f"a TTFT of {self.ttft_s * 1e3:.4g} ms is out of reach: the shortest prompt "
                f"({prompt:,} new tokens), alone, takes {alone * 1e3:.4g} ms to read"
            )
        if self.tpot_s is not None and self.tpot_s < step:
            raise InputError(
                f"a TPOT of {self.tpot_s * 1e3:.4g} ms is out of reach: one sequence of {prompt:,} "
                f"tokens, alone, takes {step * 1e3:.4g} ms a token"
            )


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in numbers. Rates are over the whole run, output tokens only unless it says total."""

    requests: int
    duration_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    requests_per_s: float
    good_requests_per_s: float
    good_share: float
    ttft_s: Spread
    tpot_s: Spread
    itl_s: Spread
    e2e_s: Spread
    queue_s: Spread
    running: float
    waiting: float
    most_waiting: int
    kv_use: float
    most_kv_use: float
    busy: float
    steps: int
    preemptions: int
    recomputed_tokens: int


def summary(served: Served, objectives: Objectives | None = None) -> Summary:
    """Latencies, rates and means over time of a run."""
    requests, steps = served.requests, served.timeline
    duration = served.duration_s
    length = steps.end_s - steps.begin_s
    good = (objectives or Objectives()).met(served)
    use = steps.kv_blocks / max(served.policy.blocks, 1)
    read = int(steps.prompt_tokens.sum())
    return Summary(
        requests=len(requests),
        duration_s=duration,
        output_tokens_per_s=served.output_tokens_per_s,
        total_tokens_per_s=float((requests.input_tokens + requests.output_tokens).sum()) / duration,
        requests_per_s=len(requests) / duration,
        good_requests_per_s=float(good.sum()) / duration,
        good_share=float(good.mean()),
        ttft_s=Spread.of(served.ttft_s),
        tpot_s=Spread.of(served.tpot_s),
        itl_s=_weighted(_gaps(served), steps.decoding),
        e2e_s=Spread.of(served.e2e_s),
        queue_s=Spread.of(served.scheduled_s - requests.arrival_s),
        running=float(steps.running @ length) / duration,
        waiting=float(steps.waiting @ length) / duration,
        most_waiting=int(steps.waiting.max()),
        kv_use=float(use @ length) / duration,
        most_kv_use=float(use.max()),
        busy=float(length.sum()) / duration,
        steps=len(length),
        preemptions=int(served.preemptions.sum()),
        recomputed_tokens=max(
            read - int((requests.input_tokens - requests.cached_tokens).sum()), 0
        ),
    )


def _gaps(served: Served) -> Array:
    """Seconds between the tokens of each step and those before: prompts read in between count."""
    steps = served.timeline
    gaps = steps.end_s - steps.begin_s
    if not served.policy.apart:
        return gaps
    decodes = np.flatnonzero(steps.decoding)
    since = steps.end_s[decodes[:-1]]
    busy = np.concatenate(([0.0], np.cumsum(gaps)))
    worked = busy[decodes[1:] + 1] - busy[decodes[:-1] + 1]
    elapsed = steps.end_s[decodes[1:]] - since
    # Where the engine idled in between, those that decode now had not begun.
    gaps[decodes[1:]] = np.where(elapsed <= worked + 1e-9, elapsed, gaps[decodes[1:]])
    return gaps


def _weighted(values: Array, weights: NDArray[np.int64]) -> Spread:
    """The spread of values that each occur `weights` times."""
    if not weights.any():
        return Spread.of(np.array([]))
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    at = np.searchsorted(total, np.array(list(QUANTILES.values())) * total[-1])
    return Spread(
        float(values @ weights) / float(total[-1]),
        dict(zip(QUANTILES, values[order][at].tolist(), strict=True)),
        float(values[weights > 0].max()),
    )


@dataclass(frozen=True, slots=True)
class Windows:
    """A run in windows of equal width that start at `time_s`; latencies by a request's arrival."""

    time_s: Array
    width_s: float
    running: Array
    waiting: Array
    kv_use: Array
    output_tokens_per_s: Array
    prompt_tokens_per_s: Array
    ttft_p50_s: Array
    ttft_p95_s: Array
    tpot_p50_s: Array
    tpot_p95_s: Array


def over_time(served: Served, count: int = 120) -> Windows:
    """The run in `count` windows; NaN where no request arrived."""
    steps, start = served.timeline, float(served.requests.arrival_s[0])
    edges = np.linspace(start, start + served.duration_s, count + 1)
    width = float(edges[1] - edges[0])
    # The first token of a prompt comes with the prompt; decoding ones bring one each.
    firsts = np.histogram(served.first_token_s, edges)[0]
    within = np.clip(np.searchsorted(edges, served.requests.arrival_s, "right") - 1, 0, count - 1)
    middle = (edges[:-1] + edges[1:]) / 2
    at = np.clip(np.searchsorted(steps.end_s, middle), 0, len(steps.end_s) - 1)
    idle = steps.begin_s[at] > middle
    return Windows(
        time_s=edges[:-1] - start,
        width_s=width,
        running=np.where(idle, 0, steps.running[at]).astype(float),
        waiting=np.where(idle, 0, steps.waiting[at]).astype(float),
        kv_use=np.where(idle, 0, steps.kv_blocks[at]) / max(served.policy.blocks, 1),
        output_tokens_per_s=(_rate(steps.end_s, steps.decoding, edges) + firsts) / width,
        prompt_tokens_per_s=_rate(steps.end_s, steps.prompt_tokens, edges) / width,
        **_latencies(served, within, count),
    )


def _rate(times: Array, amounts: NDArray[np.int64], edges: Array) -> Array:
    return np.histogram(times, edges, weights=amounts.astype(float))[0]


def _latencies(served: Served, window: NDArray[np.int64], count: int) -> dict[str, Array]:
    found = {}
    for name, values in (("ttft", served.ttft_s), ("tpot", served.tpot_s)):
        for label in ("p50", "p95"):
            found[f"{name}_{label}_s"] = np.full(count, np.nan)
        for index in np.unique(window):
            here = values[window == index]
            here = here[~np.isnan(here)]
            if here.size:
                for label in ("p50", "p95"):
                    found[f"{name}_{label}_s"][index] = np.quantile(here, QUANTILES[label])
    return found
