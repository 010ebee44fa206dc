"""The scheduler of continuous batching, step by step, as vLLM-like engines do it.

Every step first gives each decoding sequence one token, then spends what is left of the token budget
on prompts: those begun before, then waiting ones in order of priority and arrival. The cache is paged;
when no block is free, the latest admitted sequence is preempted: its blocks are freed, and it waits in
front of all others to be read again, except for those of its blocks nobody has taken meanwhile. Source:
vLLM v1/core/sched/scheduler.py and v1/core/kv_cache_manager.py (Apache-2.0).

An engine that schedules ahead decides on a step when the one before it starts. So it sees arrivals up
to that moment only, and frees the places of finished sequences one step late.

All decoding sequences grow by one token a step, so a step costs O(prompts in it): finishing steps are
known when decoding starts, and blocks are claimed by sequences of equal phase, not one by one.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from dataclasses import dataclass, field

from roofcast.simulator.paging import BlockPool
from roofcast.simulator.requests import Requests
from roofcast.simulator.scheduler_policy import Policy
from roofcast.simulator.step_time import StepTimes

__all__ = ["Log", "Policy", "Scheduler"]

Chunk = tuple[int, int]  # a request and how many tokens of it a step reads


@dataclass(slots=True)
class Log:
    """What a run writes down: seven numbers a step, and moments of preemption and return."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    preemptions: list[tuple[float, int]] = field(default_factory=list)
    returns: list[tuple[float, int]] = field(default_factory=list)


class Scheduler:
    """The mutable state of one run. Lists hold one entry a request."""

    def __init__(
        self, requests: Requests, times: StepTimes, policy: Policy, concurrency: int | None = None
    ) -> None:
        policy.check(requests)
        count = len(requests)
        self.times, self.policy, self.count = times, policy, count
        self.known = count if concurrency is None else min(concurrency, count)
        self.arrival = (requests.arrival_s + policy.request_s).tolist()
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
        self.running: dict[int, None] = {}  # in order of admission
        self.begun: list[int] = []  # prompts partly read
        self.leaving: list[int] = []  # blocks of those that finished in the step that runs,
        self.left: list[int] = []  # and in the one before it
        self.finishing: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.phase = [0] * policy.block_tokens
        self.pool = BlockPool(policy.blocks)
        self.arrived = self.admitted = self.decoding = self.context_sum = self.step = 0
        self.now = self.decided = 0.0
        self.log = Log()

    def run(self) -> None:
        """Serve all requests."""
        done = 0
        while done < self.count:
            self._see_arrivals()
            if not self.decoding and not self.begun and not self.waiting:
                self._catch_up(self.arrival[self.arrived])
                continue
            done += self._advance()

    def _see_arrivals(self) -> None:
        """Queue the requests that came before the coming step is decided."""
        while self.arrived < self.known and self.arrival[self.arrived] <= self.decided:
            index = self.arrived
            heapq.heappush(self.waiting, (self.priority[index], self.arrival[index], index))
            self.arrived += 1

    def _catch_up(self, until: float) -> None:
        """Nothing to decide ahead: wait for the step that runs, and for the next request."""
        self.now = self.decided = max(self.now, until)
        self._free(self.left + self.leaving)
        self.left, self.leaving = [], []

    def _advance(self) -> int:
        """One step; returns how many requests it finished."""
        policy = self.policy
        self._free(self.left if policy.ahead else self.leaving)
        self.left, self.leaving = (self.leaving if policy.ahead else []), []
        alone = policy.apart and bool(chunks := self._choose_chunks(preempted=False))
        if not alone:
            preempted = self._claim_decode_blocks()
            chunks = [] if policy.apart else self._choose_chunks(preempted)
        decoding = 0 if alone else self.decoding
        if not decoding and not chunks:
            if self.left or self.decided < self.now:
                self._catch_up(self.now)
                return 0
            raise RuntimeError("the scheduler found nothing to do: a defect")
        return self._compute(decoding, chunks)

    def _compute(self, decoding: int, chunks: list[Chunk]) -> int:
        """Let the decided step run: its time passes, its tokens are there."""
        mean = self.context_sum / self.decoding if decoding else 0.0
        lasts = self.times(decoding, mean, [(self.cached[i], new) for i, new in chunks])
        begin, self.now = self.now, self.now + lasts
        self.decided = begin if self.policy.ahead else self.now
        read = sum(new for _, new in chunks)
        running, used = self.admitted, self.policy.blocks - self.pool.free
        done = 0
        if decoding:
            self.step += 1
            self.context_sum += decoding
            done = self._finish()
        done += self._read(chunks)
        self.log.steps.extend((begin, self.now, running, len(self.waiting), used, decoding, read))
        return done

    def _claim_decode_blocks(self) -> bool:
        """Take the blocks this step's decode tokens need, preempting until they are there."""
        preempted = False
        while self.pool.free < (needed := self.phase[-self.step % self.policy.block_tokens]):
            self._preempt()
            preempted = True
        if needed:
            self.pool.take(needed)
        return preempted

    def _choose_chunks(self, preempted: bool) -> list[Chunk]:
        """Prompts, begun ones first, that fit in the budget, in the cache and beside each other."""
        budget = self.policy.token_budget - (0 if self.policy.apart else self.decoding)
        chunks: list[Chunk] = []
        for index in list(self.begun):
            if budget <= 0:
                return chunks
            new = min(self._target(index) - self.cached[index], budget)
            if not self._make_room(index, new):
                return chunks
            chunks.append((index, new))
            budget -= new
        while self.waiting and budget > 0 and not preempted:
            new = self._admit(self.waiting[0][2], budget, first=not chunks)
            if not new:
                break
            chunks.append((heapq.heappop(self.waiting)[2], new))
            budget -= new
        return chunks

    def _make_room(self, index: int, new: int) -> bool:
        """Take blocks for a begun prompt's next chunk, preempting; False where it had to go itself."""
        held = self._blocks(self.cached[index])
        needed = self._blocks(self.cached[index] + new) - held
        while needed > self.pool.free and index in self.running:
            self._preempt()
        if index not in self.running:
            return False
        self.pool.take(needed)
        return True

    def _admit(self, index: int, budget: int, first: bool) -> int:
        """Begin a waiting prompt; returns the tokens read of it, 0 where it has to wait."""
        if self.admitted >= self.policy.max_sequences:
            return 0
        target, hit = self._target(index), self._found(index)
        whole = target - hit
        if not self.policy.chunked:
            if whole > budget and not first:
                return 0
            budget = max(budget, whole)
        new = min(whole, budget)
        needed = self._blocks(target if self.policy.whole_prompt_fits else hit + new)
        if needed > self.pool.free:
            return 0
        self.pool.take(self._blocks(hit + new) - self.pool.reclaim(index))
        self.cached[index] = hit
        self.running[index] = None
        self.begun.append(index)
        self.admitted += 1
        if self.scheduled[index] < 0:
            self.scheduled[index] = self.decided
        else:
            self.log.returns.append((self.decided, index))
        return new

    def _found(self, index: int) -> int:
        """Tokens of a waiting request already in the cache: a shared prefix, or its own blocks."""
        kept = self.pool.kept(index)
        if not kept:
            return int(self.hit[index])
        size = self.policy.block_tokens
        return max(int(self.hit[index]), min(kept, self.cached[index] // size) * size)

    def _read(self, chunks: list[Chunk]) -> int:
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
            else:
                self._start_decoding(index, left)
        return done

    def _start_decoding(self, index: int, left: int) -> None:
        self.decodes[index] = True
        self.started[index] = self.step
        self.decoding += 1
        self.context_sum += self.cached[index]
        self.phase[(self.cached[index] - self.step) % self.policy.block_tokens] += 1
        self.finishing[self.step + left].append((index, self.epoch[index]))

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
        """Answered in full; in a closed loop the next request comes in its place."""
        self.last[index] = self.now
        self.epoch[index] += 1
        del self.running[index]
        self.leaving.append(self._blocks(context))
        if self.known < self.count:
            self.arrival[self.known] = self.now + self.policy.request_s
            self.known += 1

    def _free(self, gone: list[int]) -> None:
        """Give back the blocks and places of requests known to have finished."""
        for blocks in gone:
            self.pool.give(blocks)
        self.admitted -= len(gone)

    def _stop_decoding(self, index: int) -> int:
        """Take a sequence out of the decoding ones; returns its tokens in the cache."""
        context = self.cached[index] + self.step - self.started[index]
        self.phase[(context - self.step) % self.policy.block_tokens] -= 1
        self.context_sum -= context
        self.decoding -= 1
        self.decodes[index] = False
        return int(context)

    def _preempt(self) -> None:
        """Free the latest admitted sequence of the lowest priority; it waits again, first in line."""
        index = max(reversed(self.running), key=self.priority.__getitem__)
        del self.running[index]
        if self.decodes[index]:
            self.generated[index] += self.step - self.started[index]
            self.cached[index] = self._stop_decoding(index)
        else:
            self.begun.remove(index)
        owner = index if self.policy.keeps_blocks else None
        self.pool.give(self._blocks(self.cached[index]), owner)
        self.epoch[index] += 1
        self.preempted[index] += 1
        self.admitted -= 1
        self.log.preemptions.append((self.now, index))
        heapq.heappush(self.waiting, (self.priority[index], self.arrival[index], index))

    def _target(self, index: int) -> int:
        """Tokens to read before the next one can be generated: prompt and what was generated."""
        return int(self.prompt[index] + self.generated[index])

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.policy.block_tokens)
