"""Continuous batching of a trace: when each request was answered, and the state after each step.

The scheduler is in scheduler.py; a step's duration comes from `StepTimes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.errors import InputError
from roofcast.simulator.requests import Requests
from roofcast.simulator.scheduler import Policy, Scheduler
from roofcast.simulator.step_time import StepTimes
from roofcast.simulator.workload import Array

__all__ = ["Policy", "Served", "Timeline", "serve"]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a run, one entry a step, as they were decided.

    A step runs from `begin_s` to `end_s` with `running` sequences, of which `decoding` get a token
    and the others have `prompt_tokens` read; `waiting` are queued, `kv_blocks` in use.
    """

    begin_s: Array
    end_s: Array
    running: NDArray[np.int64]
    waiting: NDArray[np.int64]
    kv_blocks: NDArray[np.int64]
    decoding: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens computed in each step."""
        return self.decoding + self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Moments:
    """When something happened to which request."""

    time_s: Array
    request: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time_s)


@dataclass(frozen=True, slots=True)
class Served:
    """When each request was scheduled and answered, in the order of the trace; times in seconds."""

    requests: Requests
    scheduled_s: Array
    first_token_s: Array
    last_token_s: Array
    preemptions: NDArray[np.int64]
    timeline: Timeline
    policy: Policy
    preempted: Moments
    returned: Moments

    @property
    def ttft_s(self) -> Array:
        """Arrival to first token."""
        return self.first_token_s - self.requests.arrival_s

    @property
    def tpot_s(self) -> Array:
        """Mean time per output token, the first one excluded; NaN for replies of one token."""
        more = self.requests.output_tokens - 1
        spent = self.last_token_s - self.first_token_s
        return np.where(more > 0, spent / np.maximum(more, 1), np.nan)

    @property
    def e2e_s(self) -> Array:
        """Arrival to last token."""
        return self.last_token_s - self.requests.arrival_s

    @property
    def duration_s(self) -> float:
        """First arrival to last token of all."""
        return float(self.last_token_s.max() - self.requests.arrival_s[0])

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens over the whole run."""
        return float(self.requests.output_tokens.sum()) / self.duration_s


def serve(
    requests: Requests, times: StepTimes, policy: Policy, concurrency: int | None = None
) -> Served:
    """Run a trace to its end.

    With `concurrency`, a closed loop: so many requests are in flight, the next one arrives when one
    is answered, and arrival times of the trace don't count. Raises CapacityError for a request that
    could never fit.
    """
    if concurrency is not None:
        if concurrency < 1:
            raise InputError(f"concurrency must be at least 1, not {concurrency}")
        requests = replace(requests, arrival_s=np.zeros(len(requests)))
    run = Scheduler(requests, times, policy, concurrency)
    run.run()
    columns = np.frombuffer(run.log.steps).reshape(-1, 7).T.copy()
    return Served(
        requests=requests if concurrency is None else _arrived(requests, run),
        scheduled_s=np.array(run.scheduled),
        first_token_s=np.array(run.first),
        last_token_s=np.array(run.last),
        preemptions=np.array(run.preempted),
        timeline=Timeline(columns[0], columns[1], *columns[2:].astype(np.int64)),
        policy=policy,
        preempted=_moments(run.log.preemptions),
        returned=_moments(run.log.returns),
    )


def _arrived(requests: Requests, run: Scheduler) -> Requests:
    """The requests with the times at which a closed loop sent them."""
    return replace(requests, arrival_s=np.array(run.arrival) - run.policy.request_s)


def _moments(pairs: list[tuple[float, int]]) -> Moments:
    return Moments(np.array([t for t, _ in pairs]), np.array([i for _, i in pairs], dtype=np.int64))
