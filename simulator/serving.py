"""Serving at a steady state: a fixed number of requests in flight, decode interleaved with prompts.

`concurrency` C requests are in flight; each brings a prompt and asks for a reply of O tokens. B of them
decode at a time, the others wait or have their prompt read. A token takes

    T = D(B) + n P / O,     B = C O T / (O T + F)

with D the decode step of B sequences at the mean context, P the time that one prompt adds, n the
prompts of others that come in while a reply is written and F the time to the first token. In a steady
closed loop every reply sees each other request in flight once: n = B (C - 1) / C. Where all requests
are equally long and prompts go before decode, everyone starts and ends together: B = C and
n = (C - m) / 2, with m prompts read in one pass. Everything is an array over points, never
a loop over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofcast.simulator.workload import Array

_HALVINGS, _REFINEMENTS = 5, 7


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop: requests in flight and the mean lengths, one entry a point.

    `spread` is the ratio of the shortest to the longest request, 1 where all are equal; lengths are
    uniform between them. The run brings `waves` requests for each one in flight.
    """

    concurrency: Array
    prompt: Array
    output: Array
    spread: Array
    waves: int = 10

    @property
    def equal(self) -> NDArray[np.bool_]:
        """Where all requests have the same lengths."""
        return np.asarray(self.spread >= 1.0)

    @property
    def deviation(self) -> Array:
        """Standard deviation of the reply length over its mean.

        >>> load = Load(np.ones(1), np.ones(1), np.ones(1), np.array([0.8]))
        >>> load.deviation.round(4).tolist()  # 0.2 / sqrt(12) / 0.9
        [0.0642]
        """
        return np.asarray((1.0 - self.spread) / np.sqrt(12.0) / ((1.0 + self.spread) / 2.0))


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How an engine fits prompts between decode steps, one entry a point.

    `prompts_first`: waiting prompts are read before decode goes on (SGLang); otherwise their tokens
    ride in decode steps (vLLM and TensorRT-LLM). `token_budget` prompt tokens fit one step. New
    requests are looked for every `poll_steps` decode steps and then held back for `wait_steps` more, to
    read several prompts in one pass.
    """

    prompts_first: NDArray[np.bool_]
    token_budget: Array
    poll_steps: Array
    wait_steps: Array


@dataclass(frozen=True, slots=True)
class Curve:
    """Decode step time of each point over a common grid of batches: (points, batches)."""

    batches: Array
    step_s: Array

    def __call__(self, batch: Array) -> Array:
        """Step time at one batch a point: linear between the nodes, extended beyond the last.

        >>> Curve(np.array([1.0, 3.0]), np.array([[1.0, 2.0]]))(np.array([2.0])).tolist()
        [1.5]
        """
        right = np.clip(np.searchsorted(self.batches, batch), 1, self.batches.size - 1)
        low, high = self.batches[right - 1], self.batches[right]
        share = (batch - low) / (high - low)
        rows = np.arange(self.step_s.shape[0])
        below, above = self.step_s[rows, right - 1], self.step_s[rows, right]
        return np.asarray(below + share * (above - below))


@dataclass(frozen=True, slots=True)
class Costs:
    """What the engine takes, per point: the decode curve and the seconds one prompt adds.

    `shared` is the part of a decode step that a pass reading prompts too does not pay again.
    `prompt_s` is the time of one prompt among others in full passes, `weights_s` what a pass with one
    prompt takes longer because it waits for weights, `pass_s` what each pass costs besides (host and
    launches), `request_s` what a request takes outside of any step. `most` caps the sequences that
    decode at once (memory, settings).
    """

    decode: Curve
    shared: Curve
    prompt_s: Array
    weights_s: Array
    pass_s: Array
    request_s: Array
    most: Array

    def pass_time_s(self, prompts: Array) -> Array:
        """Seconds of a pass that reads so many prompts (or that part of one).

        n P + max(W - (n - 1) P, 0) + pass: the more prompts share it, the less it waits for weights.
        """
        beyond = np.maximum(prompts - 1.0, 0.0) * self.prompt_s
        waiting = np.maximum(self.weights_s - beyond, 0.0)
        return np.asarray(prompts * self.prompt_s + waiting + self.pass_s)


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady state of each point; `saturated` where memory, not concurrency, sets the batch."""

    batch: Array
    tpot_s: Array
    ttft_s: Array
    saturated: NDArray[np.bool_]


def closed_loop(load: Load, costs: Costs, scheduler: Scheduler) -> Steady:
    """Solve for the mean batch: B such that C O T / (O T + F) decode while B do."""
    most = np.minimum(load.concurrency, costs.most)
    together = _together(load, scheduler)

    def surplus(batch: Array) -> Array:
        return _decoding(batch, load, costs, scheduler) - batch

    batch = np.where(together, most, _root(surplus, most))
    saturated = (batch > 0.999 * most) & (costs.most < load.concurrency)
    tpot = token_s(batch, load, costs, scheduler)
    ttft = first_token_s(batch, tpot, load, costs, scheduler)
    waiting = (load.concurrency - batch) / np.maximum(batch, 1e-9) * load.output * tpot
    return Steady(batch, tpot, np.where(saturated, np.maximum(ttft, waiting), ttft), saturated)


def _root(surplus: Callable[[Array], Array], most: Array) -> Array:
    """Where `surplus` falls to 0 in (0, most]; `most` where it stays positive.

    Halving brackets the root, then false position with the Illinois rule closes in (Dowell and
    Jarratt, BIT 11, 1971): smooth in its parameters, as a fit by finite differences needs.
    """
    low, high = np.zeros_like(most), most.copy()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        more = surplus(middle) > 0.0
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    at_low, at_high = surplus(low), surplus(high)
    for _ in range(_REFINEMENTS):
        width = np.maximum(at_low - at_high, 1e-300)
        middle = np.clip(low + (high - low) * at_low / width, low, high)
        found = surplus(middle)
        more = found > 0.0
        at_high = np.where(more, at_high / 2.0, found)
        at_low = np.where(more, found, at_low / 2.0)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.where(surplus(most) > 0.0, most, middle)


def _together(load: Load, scheduler: Scheduler) -> NDArray[np.bool_]:
    """Where everyone starts and ends together: equal requests, prompts before decode."""
    return np.asarray(load.equal & scheduler.prompts_first)


def _decoding(batch: Array, load: Load, costs: Costs, scheduler: Scheduler) -> Array:
    """Requests that decode if `batch` did: the share of a request's life spent decoding."""
    tpot = token_s(batch, load, costs, scheduler)
    ttft = first_token_s(batch, tpot, load, costs, scheduler)
    reply = load.output * tpot
    return np.asarray(load.concurrency * reply / (reply + ttft))


def token_s(batch: Array, load: Load, costs: Costs, scheduler: Scheduler) -> Array:
    """Mean seconds between tokens: the decode step plus the prompts of others, T = D + n P / O."""
    others = batch * (load.concurrency - 1.0) / load.concurrency
    joined = np.minimum(_joined(load, scheduler), load.concurrency)
    behind = np.maximum(batch - joined, 0.0) / 2.0
    seen = np.where(_together(load, scheduler), behind, others)
    step = costs.decode(np.maximum(batch, 1.0))
    return np.asarray(step + seen * _added(batch, load, costs, scheduler) / load.output)


def first_token_s(
    batch: Array, tpot: Array, load: Load, costs: Costs, scheduler: Scheduler
) -> Array:
    """Mean seconds to the first token: the running step, the queue and the request's own prompt.

    Equal requests that were read in one pass end in one step, come back together and are read in one
    pass again: each waits for all prompts of that pass.
    """
    step = costs.decode(np.maximum(batch, 1.0))
    passes = np.maximum(load.prompt / scheduler.token_budget, 1.0)
    together = np.minimum(_joined(load, scheduler), load.concurrency)
    joined = np.where(load.equal & (passes == 1.0), together, 1.0 / passes)
    own = passes * (costs.pass_time_s(joined) + _beside(batch, costs, scheduler))
    notice = (scheduler.poll_steps / 2.0 + scheduler.wait_steps) * step
    wait = _queue(batch, tpot, load, costs, scheduler)
    return np.asarray(costs.request_s + own + notice + wait)


def _beside(batch: Array, costs: Costs, scheduler: Scheduler) -> Array:
    """What the sequences that decode in a pass with prompts add to it; 0 where prompts go alone."""
    busy = np.maximum(batch, 1.0)
    riding = np.maximum(costs.decode(busy) - costs.shared(busy), 0.0)
    return np.asarray(np.where(scheduler.prompts_first, 0.0, riding))


def _joined(load: Load, scheduler: Scheduler) -> Array:
    """Prompts that one pass reads together."""
    return np.maximum(scheduler.token_budget / load.prompt, 1.0)


def _passes(batch: Array, load: Load, scheduler: Scheduler) -> Array:
    """Passes a prompt takes, those it shares counted in part.

    B sequences of O tokens let a = B / O new ones in per step, times the steps between looks at the
    queue; with so many at random, (1 - e^-a) / a passes fall to each, and never fewer than its tokens
    fill.
    """
    arrivals = batch / load.output * (scheduler.poll_steps + scheduler.wait_steps)
    alone = -np.expm1(-arrivals) / np.maximum(arrivals, 1e-9)
    return np.asarray(np.maximum(alone, load.prompt / scheduler.token_budget))


def _added(batch: Array, load: Load, costs: Costs, scheduler: Scheduler) -> Array:
    """Seconds a prompt adds to the replies of others: its own work and its share of a pass.

    A pass that also decodes replaces a decode step, whose weights and launches it needn't repeat.
    """
    spared = np.where(scheduler.prompts_first, 0.0, costs.shared(np.maximum(batch, 1.0)))
    passes = _passes(batch, load, scheduler)
    return np.asarray(np.maximum(passes * (costs.pass_time_s(1.0 / passes) - spared), 0.0))


def _queue(batch: Array, tpot: Array, load: Load, costs: Costs, scheduler: Scheduler) -> Array:
    """Mean wait behind other prompts.

    All start at once: of the first wave a request waits for half of the others. Where prompts ride in
    decode steps the replies then end as far apart as their prompts were read, so that later waves wait
    only as in an M/D/1 queue, rho S / (2 (1 - rho)). Where prompts go first, all replies of a wave
    start together and end within a window that the spread of lengths opens, sqrt(12 k) x deviation x
    O T after k waves; what can't be read within it queues, half of it on average.
    """
    passes = load.prompt / scheduler.token_budget
    service = passes * (costs.pass_time_s(1.0 / passes) + _beside(batch, costs, scheduler))
    reply = load.output * tpot
    busy = np.minimum(batch / reply * service, 0.95)
    random = np.where(load.equal, 0.0, busy * service / (2.0 * (1.0 - busy)))
    work = (load.concurrency - 1.0) * service
    width = np.sqrt(12.0) * load.deviation * reply
    later = np.sqrt(np.arange(1.0, load.waves))[:, np.newaxis]
    window = np.where(scheduler.prompts_first, width * later, np.inf)
    waits = np.maximum((work - window) / 2.0, random)
    return np.asarray((work / 2.0 + waits.sum(axis=0)) / load.waves)


@dataclass(frozen=True, slots=True)
class Static:
    """A batch that starts together: first tokens after all prompts, then one step a token."""

    ttft_s: Array
    tpot_s: Array
    e2e_s: Array


def static_batch(
    batch: Array, output: Array, step_s: Array, prompts_s: Array, most: Array
) -> Static:
    """Equal requests started together; what memory can't hold at once runs in later turns.

    `step_s` is the decode step of the sequences that run at once, at the mean context (exact, since a
    step grows linearly with context), `prompts_s` the time of their prompts.

    >>> run = static_batch(*map(np.asarray, (4.0, 101.0, 0.01, 0.5, 1e9)))
    >>> float(run.e2e_s)  # 0.5 + 100 steps
    1.5
    """
    turns = np.maximum(batch / np.minimum(batch, most), 1.0)
    return Static(
        ttft_s=np.asarray(prompts_s * (1.0 + (turns - 1.0) / 2.0)),
        tpot_s=np.asarray(step_s),
        e2e_s=np.asarray(turns * (prompts_s + (output - 1.0) * step_s)),
    )
