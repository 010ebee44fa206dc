"""Continuous batching, event by event, as vLLM-like engines do it.

Every step first gives each decoding sequence one token, then spends what is left of the token budget
on prompts: those begun before, then waiting ones in order of priority and arrival. A step's duration
comes from `StepTimes`. The cache is paged: a sequence holds whole blocks; when none is free, the
latest admitted sequence is preempted, its blocks freed, and later recomputed from its tokens. Source
of the policy: vLLM v1/core/sched/scheduler.py (Apache-2.0).

All decoding sequences grow by one token a step, so a step costs O(prompts in it): finishing steps are
known when decoding starts, and blocks are claimed by sequences of equal phase, not one by one.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator.requests import Requests
from roofcast.simulator.step_time import StepTimes
from roofcast.simulator.workload import Array


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of the scheduler: tokens a step, sequences at once, cache size in tokens and its pages.

    Not `chunked`: a prompt is read whole, in a step of its own tokens and no decoding ones.
    """

    kv_tokens: int
    token_budget: int = 2048
    max_sequences: int = 256
    block_tokens: int = 16
    chunked: bool = True

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_sequences", "block_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def blocks(self) -> int:
        """Blocks the cache holds."""
        return self.kv_tokens // self.block_tokens


@dataclass(frozen=True, slots=True)
class Timeline:
    """State at the end of each step, one entry a step."""

    time_s: Array
    decoding: NDArray[np.int64]
    waiting: NDArray[np.int64]
    kv_blocks: NDArray[np.int64]
    tokens: NDArray[np.int64]


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


def serve(requests: Requests, times: StepTimes, policy: Policy) -> Served:
    """Run a trace to its end. Raises CapacityError for a request that could never fit."""
    return _Scheduler(requests, times, policy).run()


class _Scheduler:
    """The mutable state of one run. Lists hold one entry a request."""

    def __init__(self, requests: Requests, times: StepTimes, policy: Policy) -> None:
        longest = int(np.max(requests.input_tokens + requests.output_tokens))
        if longest > policy.kv_tokens:
            raise CapacityError(
                f"a request of {longest} tokens can never fit in a cache of {policy.kv_tokens}"
            )
        if not policy.chunked and int(requests.input_tokens.max()) > policy.token_budget:
            raise InputError(
                f"a prompt of {requests.input_tokens.max()} tokens exceeds the token budget of "
                f"{policy.token_budget}, and prompts are not chunked"
            )
        count = len(requests)
        self.requests, self.times, self.policy = requests, times, policy
        self.arrival = requests.arrival_s.tolist()
        self.prompt = requests.input_tokens.tolist()
        self.reply = requests.output_tokens.tolist()
        self.priority = requests.priority.tolist()
        self.hit = requests.cached_tokens.tolist()
        self.generated = [0] * count
        self.cached = [0] * count
        self.started = [0] * count  # step at which decoding (re)started
        self.epoch = [0] * count  # raised when preempted: outdates scheduled finishes
        self.decodes = [False] * count
        self.scheduled = [-1.0] * count
        self.first = [-1.0] * count
        self.last = [-1.0] * count
        self.preempted = [0] * count
        self.waiting: list[tuple[int, float, int]] = []
        self.running: list[int] = []  # in order of admission; finished ones are skipped
        self.begun: list[int] = []  # prompts partly read
        self.finishing: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.phase = [0] * policy.block_tokens
        self.free = policy.blocks
        self.admitted = self.decoding = self.context_sum = self.step = 0
        self.now = 0.0
        self.log: list[tuple[float, int, int, int, int]] = []

    def run(self) -> Served:
        count, arrived, done = len(self.arrival), 0, 0
        while done < count:
            while arrived < count and self.arrival[arrived] <= self.now:
                heapq.heappush(
                    self.waiting, (self.priority[arrived], self.arrival[arrived], arrived)
                )
                arrived += 1
            if not self.admitted and not self.waiting:
                self.now = self.arrival[arrived]
                continue
            done += self._advance()
        return self._result()

    def _advance(self) -> int:
        """One step; returns how many requests it finished."""
        alone = not self.policy.chunked and bool(chunks := self._choose_chunks(preempted=False))
        if not alone:
            preempted = self._claim_decode_blocks()
            chunks = self._choose_chunks(preempted) if self.policy.chunked else []
        decoding = 0 if alone else self.decoding
        mean = self.context_sum / self.decoding if self.decoding else 0.0
        if not decoding and not chunks:
            raise RuntimeError("the scheduler found nothing to do: a defect")
        sizes = [(self.cached[i], new) for i, new in chunks]
        self.now += self.times(decoding, mean, sizes)
        done = 0
        if not alone:
            self.step += 1
            self.context_sum += self.decoding
            done = self._finish()
        done += self._read(chunks)
        used = self.policy.blocks - self.free
        read = sum(new for _, new in chunks)
        self.log.append((self.now, self.decoding, len(self.waiting), used, decoding + read))
        return done

    def _claim_decode_blocks(self) -> bool:
        """Take the blocks this step's decode tokens need, preempting until they are there."""
        preempted = False
        while self.free < (needed := self.phase[-self.step % self.policy.block_tokens]):
            self._preempt()
            preempted = True
        self.free -= needed
        return preempted

    def _choose_chunks(self, preempted: bool) -> list[tuple[int, int]]:
        """Prompts, begun ones first, that fit in the budget, in the cache and beside each other."""
        budget = self.policy.token_budget - (self.decoding if self.policy.chunked else 0)
        chunks: list[tuple[int, int]] = []
        for index in list(self.begun):
            if not self._make_room(index, budget):
                return chunks
            budget = self._take(index, budget, chunks)
        while self.waiting and budget > 0 and not preempted:
            if self.admitted >= self.policy.max_sequences:
                break
            index = self.waiting[0][2]
            whole = self._target(index) - self.hit[index]
            if not self.policy.chunked and whole > budget and chunks:
                break
            self.cached[index] = self.hit[index]
            room = budget if self.policy.chunked else max(budget, whole)
            left = self._take(index, room, chunks, held=0) - (room - budget)
            if left == budget:
                break
            budget = left
            heapq.heappop(self.waiting)
            self.running.append(index)
            self.begun.append(index)
            self.admitted += 1
            if self.scheduled[index] < 0:
                self.scheduled[index] = self.now
        return chunks

    def _make_room(self, index: int, budget: int) -> bool:
        """Preempt until a begun prompt's next chunk fits; False where it had to go itself."""
        new = min(self._target(index) - self.cached[index], budget)
        needed = self._blocks(self.cached[index] + new) - self._blocks(self.cached[index])
        while needed > self.free and index in self.begun:
            self._preempt()
        return index in self.begun

    def _take(
        self, index: int, budget: int, chunks: list[tuple[int, int]], held: int | None = None
    ) -> int:
        """Add a chunk of a prompt if blocks are free; returns the budget left."""
        new = min(self._target(index) - self.cached[index], budget)
        have = self._blocks(self.cached[index]) if held is None else held
        needed = self._blocks(self.cached[index] + new) - have
        if new <= 0 or needed > self.free:
            return budget
        self.free -= needed
        chunks.append((index, new))
        return budget - new

    def _read(self, chunks: list[tuple[int, int]]) -> int:
        """Account for prompts read in this step; a complete one has its next token."""
        done = 0
        for index, new in chunks:
            self.cached[index] += new
            if self.cached[index] < self._target(index):
                continue
            self.begun.remove(index)
            if self.first[index] < 0:
                self.first[index] = self.now
            self.generated[index] += 1
            left = self.reply[index] - self.generated[index]
            if left == 0:
                self._leave(index, self.cached[index])
                done += 1
                continue
            self.decodes[index] = True
            self.started[index] = self.step
            self.decoding += 1
            self.context_sum += self.cached[index]
            self.phase[(self.cached[index] - self.step) % self.policy.block_tokens] += 1
            self.finishing[self.step + left].append((index, self.epoch[index]))
        return done

    def _finish(self) -> int:
        done = 0
        for index, epoch in self.finishing.pop(self.step, ()):
            if self.epoch[index] != epoch:
                continue
            context = self._stop_decoding(index)
            self.generated[index] = self.reply[index]
            self._leave(index, context)
            done += 1
        return done

    def _leave(self, index: int, context: int) -> None:
        self.last[index] = self.now
        self.epoch[index] += 1
        self.free += self._blocks(context)
        self.admitted -= 1

    def _stop_decoding(self, index: int) -> int:
        """Take a sequence out of the decoding ones; returns its tokens in the cache."""
        context = self.cached[index] + self.step - self.started[index]
        self.phase[(context - self.step) % self.policy.block_tokens] -= 1
        self.context_sum -= context
        self.decoding -= 1
        self.decodes[index] = False
        return int(context)

    def _preempt(self) -> None:
        """Free the latest admitted sequence (of the lowest priority); it waits again, first in line."""
        while self.last[self.running[-1]] >= 0:
            self.running.pop()
        index = max(self._alive(), key=lambda i: self.priority[i])
        self.running.remove(index)
        if self.decodes[index]:
            self.generated[index] += self.step - self.started[index]
            context = self._stop_decoding(index)
        else:
            self.begun.remove(index)
            context = self.cached[index]
        self.free += self._blocks(context)
        self.epoch[index] += 1
        self.preempted[index] += 1
        self.admitted -= 1
        self.cached[index] = 0
        heapq.heappush(self.waiting, (self.priority[index], self.arrival[index], index))

    def _alive(self) -> Iterator[int]:
        """Running sequences, the latest admitted first."""
        return (index for index in reversed(self.running) if self.last[index] < 0)

    def _target(self, index: int) -> int:
        """Tokens to read before the next one can be generated: prompt and what was generated."""
        return int(self.prompt[index] + self.generated[index])

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.policy.block_tokens)

    def _result(self) -> Served:
        columns = np.array(self.log).T
        whole = columns[1:].astype(np.int64)
        return Served(
            requests=self.requests,
            scheduled_s=np.array(self.scheduled),
            first_token_s=np.array(self.first),
            last_token_s=np.array(self.last),
            preemptions=np.array(self.preempted),
            timeline=Timeline(columns[0], *whole),
            policy=self.policy,
        )
