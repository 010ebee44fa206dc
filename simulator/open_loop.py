"""Serving at a steady state: requests that arrive at random or in a closed loop, lengths that vary.

On average B sequences decode. A request meets B others besides itself, in a closed loop of C requests
only B (C - 1) / C, and those that began to decode together with it. While it takes its n steps, B
prompts of others are read, so that a token takes

    T = D(met) + B / n W + X / n          r = B / (n T)

with D the decode step, W what one prompt adds to the steps of others and X the work that a request
finds waiting when its own prompt is done, beyond what it leaves when it ends. B gives T and r without
solving for much, which is why a search goes over B. Of the a = B / n prompts that come in a step the
first adds F and each further one M, since weights are read once for all:

    a W = (1 - e^-a) F + (a - 1 + e^-a) M

An arriving request waits for the rest of a running step, E[S^2] / 2 E[S] on average, and for the next
one where the engine has already decided on it; in a closed loop it arrives as a step ends. An engine
that idles, with the chance e^-(requests in flight), answers at once. Prompts longer than a pass of the
token budget queue as in M/G/1 (Pollaczek and Khinchine); those who then decode find that queue before
them.

B is a birth-death process with departures B / (n T(B)): its variance is B / (1 - e) with e the
elasticity d ln T / d ln B, whatever the lengths (processor sharing is insensitive to their
distribution; Kelly, Reversibility and Stochastic Networks, 1979), times the size of groups that begin
together.

It holds where nothing is preempted, prompts leave time to decode (`VALID_LOAD`), and the start of the
run is forgotten; there means are within 3 % (TPOT, rates) and 5 % (TTFT) of the event-driven simulator.
Beyond, simulate.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.simulator.serving import Curve
from roofcast.simulator.workload import Array

VALID_LOAD: Final = 0.8
_FULL = 0.995
_ROUNDS = 5
_WITHIN_LIFE = 2.0 / 3.0
"""Share of the batch's variance that remains in its mean over one request: correlation falls from 1 to
0 along a life, as the lives of two requests overlap ever less."""


@dataclass(frozen=True, slots=True)
class Replies:
    """Mean tokens of a reply, and their standard deviation over it; one entry a point."""

    mean: Array
    variation: Array


@dataclass(frozen=True, slots=True)
class ServiceCosts:
    """What steps take, per point: curves over the batch, seconds.

    `decode` is a step without prompts, `lone` what a prompt of the mix adds to the steps that read it,
    `among` what further ones add each where 2, 4, 8, ... share their last pass. A prompt takes `passes`
    of the token budget, the last one partly filled, `filled` of them by its tokens alone; `shared` is
    the mean of its tokens over a pass, 1 at most. `square` is the mean square of its work over the
    squared mean. `alone_s` is a prompt that shares its steps with nothing, through one of `stages`
    pipeline stages. `riding`: prompts share steps with decode; otherwise decode waits. `ahead` steps
    are decided before a request is seen. `request_s` is spent outside of any step. A step brings a
    sequence `tokens_per_step`, more than one where drafts are verified.
    """

    decode: Curve
    lone: Curve
    among: tuple[Curve, ...]
    alone_s: Array
    passes: Array
    filled: Array
    shared: Array
    square: Array
    request_s: Array
    riding: NDArray[np.bool_]
    ahead: Array
    tokens_per_step: Array
    stages: Array


@dataclass(frozen=True, slots=True)
class State:
    """A steady state of each point. Times are means, or quantiles where the name says so.

    `prompt_load` is the share of time that reading prompts takes, `peak_batch` the batch's quantile.
    """

    batch: Array
    rate_per_s: Array
    tpot_s: Array
    ttft_s: Array
    tpot_quantile_s: Array
    ttft_quantile_s: Array
    prompt_load: Array
    peak_batch: Array

    @property
    def in_flight(self) -> Array:
        """Requests between arrival and last token (Little's law)."""
        return self.batch + self.rate_per_s * self.ttft_s


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps at one batch: decode, what prompts do to it, and how they queue; one entry a point.

    `running_s` is the mean length of the step that an arrival meets, `load` the share of time that
    prompts take, `queue_s` the wait behind them, `companions` begin to decode with a request.
    """

    decode_s: Array
    among_s: Array
    mean_s: Array
    running_s: Array
    rate_per_s: Array
    load: Array
    queue_s: Array
    companions: Array


def steady(
    batch: Array, replies: Replies, costs: ServiceCosts, quantile: float, closed: bool = False
) -> State:
    """The state of every point at a mean batch each, fractions allowed, and replies of mean length."""
    met, users = np.ones_like(batch), np.full_like(batch, np.inf)
    for _ in range(_ROUNDS if closed else 1):
        steps = _steps(batch, met, replies, costs)
        ttft = _first_token(batch, users, steps, costs)
        if closed:
            users = np.maximum(batch + steps.rate_per_s * ttft, 1.0)
            met = 1.0 - 1.0 / users
    sigmas = NormalDist().inv_cdf(quantile)
    above = _steps(batch + 1.0, met, replies, costs).mean_s
    elasticity = np.clip((above / steps.mean_s - 1.0) * batch, 0.0, 0.98)
    variance = batch * ((1.0 - batch / users) if closed else 1.0 / (1.0 - elasticity))
    variance = variance * (1.0 + steps.companions)
    peak = batch + sigmas * np.sqrt(variance) + _skewed(sigmas)
    slow = batch + sigmas * np.sqrt(_WITHIN_LIFE * variance) + _skewed(sigmas)
    drift = elasticity * np.sqrt(variance) / np.maximum(batch, 1.0)
    spread = _first_token_deviation(batch, ttft, drift, steps, costs)
    return State(
        batch=batch,
        rate_per_s=steps.rate_per_s,
        tpot_s=steps.mean_s / costs.tokens_per_step,
        ttft_s=ttft,
        tpot_quantile_s=_steps(slow, met, replies, costs).mean_s / costs.tokens_per_step,
        ttft_quantile_s=ttft + (sigmas + _skewed(sigmas)) * spread,
        prompt_load=steps.load,
        peak_batch=np.minimum(peak, users),
    )


def _steps(batch: Array, met: Array, replies: Replies, costs: ServiceCosts) -> _Steps:
    """The steps at a mean batch of which a request meets a share.

    Longer steps bring more prompts and fuller queues, which make steps longer: a few rounds settle it.
    """
    size = batch * met + 1.0
    count = np.maximum(replies.mean - 1.0, 1.0) / costs.tokens_per_step
    arrivals = batch * met / count
    decode, lone = costs.decode(size), costs.lone(size)
    crowds = np.stack([curve(size) for curve in costs.among])
    work, running = lone, np.zeros_like(batch)
    mean = decode + arrivals * lone
    for _ in range(_ROUNDS):
        rate = batch / (count * mean)
        overlap = met / (1.0 + replies.variation**2)
        companions = _companions(rate * work, costs.square) * overlap
        decode = costs.decode(size + companions)
        first = _first(arrivals * np.clip(running / mean, 1.0, 10.0))
        among = _among(crowds, 1.0 / first)
        work = first * lone + (1.0 - first) * among
        running = _running(decode, lone, among, arrivals, first, costs)
        service = among + np.where(costs.riding, costs.filled * decode, 0.0)
        load = rate * service
        queue = costs.shared**2 * _queue(load, service, costs.square) * met
        own = np.where(costs.riding, costs.passes * decode, 0.0) + lone + rate * running * among
        behind = np.maximum(own - costs.passes * mean, 0.0)
        free = np.maximum(1.0 - arrivals * costs.passes / np.maximum(load, 1e-9), 0.0)
        found = rate * among * met * (behind + queue * free)
        settled = decode + arrivals * work + found / count
        mean = (mean + 2.0 * settled) / 3.0
    rate = batch / (count * mean)
    return _Steps(decode, among, mean, running, rate, load, queue, companions)


def _first(number: Array) -> Array:
    """Share of prompts that come first in their step where `number` come at random: (1 - e^-a) / a.

    >>> _first(np.array([1.0])).round(3).tolist()
    [0.632]
    """
    least = np.maximum(number, 1e-9)
    return np.asarray(-np.expm1(-least) / least)


def _running(
    decode: Array, lone: Array, among: Array, arrivals: Array, first: Array, costs: ServiceCosts
) -> Array:
    """Mean length of the step that an arrival meets, E[S^2] / E[S].

    Prompts of one pass come at random, a Poisson number in a step; those of several take turns.
    """
    long = _long(costs)
    gap = lone - among
    added = arrivals * (among + first * gap)
    short = arrivals * (first * (gap**2 + 2.0 * gap * among) + among**2 * costs.square)
    square = (1.0 - long) * (short + (among * arrivals) ** 2) + long * among / costs.passes * added
    return np.asarray((decode**2 + 2.0 * decode * added + square) / (decode + added))


def _long(costs: ServiceCosts) -> Array:
    """0 where prompts take one pass, 1 from two on."""
    return np.clip(costs.passes - 1.0, 0.0, 1.0)


def _companions(load: Array, square: Array) -> Array:
    """Requests that begin to decode together with one: E[K^2] / E[K] - 1.

    K prompts are read while decode all but stands still, as many as M/G/1 serves in a busy period: mean
    1 / (1 - load), variance (load (1 - load) + (r s)^2 square) / (1 - load)^3 (Takacs, Introduction to
    the Theory of Queues, 1962).

    >>> float(_companions(np.array(0.5), np.array(1.0)))  # 1 + (0.25 + 0.25) / 0.25
    3.0
    """
    busy = np.clip(load, 0.0, VALID_LOAD)
    free = 1.0 - busy
    return np.asarray(busy / free + (busy * free + busy**2 * square) / free**2)


def _among(crowds: Array, number: Array) -> Array:
    """What each further of a number of prompts in a pass adds, from its values at 2, 4, 8, ...

    >>> _among(np.array([[1.0], [2.0]]), np.array([2.0**1.5])).tolist()
    [1.5]
    """
    place = np.clip(np.log2(np.maximum(number, 2.0)) - 1.0, 0.0, len(crowds) - 1.0)
    low = np.minimum(place.astype(np.int64), len(crowds) - 2)
    points = np.arange(crowds.shape[1])
    share = place - low
    return np.asarray((1.0 - share) * crowds[low, points] + share * crowds[low + 1, points])


def _first_token(batch: Array, users: Array, steps: _Steps, costs: ServiceCosts) -> Array:
    """Mean time to the first token; `users` are endless where requests come from outside."""
    size = np.maximum(batch, 1.0)
    closed = np.isfinite(users)
    long = _long(costs)
    own = np.where(costs.riding, costs.passes * costs.decode(size), 0.0) + costs.lone(size)
    # a closed loop sends the next request as a step ends, and the host takes some of the next one
    seen = np.where(costs.request_s > 0.0, steps.mean_s - costs.request_s, 0.0)
    half = steps.running_s / 2.0
    rest = np.where(closed, np.where(costs.request_s > 0.0, np.maximum(seen, half), 0.0), half)
    notice = rest + costs.ahead * steps.mean_s
    calm = (1.0 - steps.load) * (rest / steps.mean_s + costs.ahead) * steps.decode_s
    window = np.where(closed, steps.mean_s, steps.running_s)
    share = np.where(closed, 1.0 - 1.0 / users, 1.0)
    crowd = steps.rate_per_s * share * window * steps.among_s
    wait = (1.0 - long) * (notice + crowd) + long * calm + steps.queue_s
    idle = np.exp(-(batch + steps.rate_per_s * own))
    idle = np.where(closed, np.clip(2.0 - users, 0.0, 1.0), idle)
    return np.asarray(
        costs.request_s + idle * costs.alone_s * costs.stages + (1.0 - idle) * (own + wait)
    )


def _first_token_deviation(
    batch: Array, ttft: Array, drift: Array, steps: _Steps, costs: ServiceCosts
) -> Array:
    """Standard deviation of the time to the first token.

    The prompt's own length, its place in a running step, prompts that share its steps, the queue, and a
    batch that drifts.
    """
    lone = costs.lone(np.maximum(batch, 1.0))
    short = 1.0 - _long(costs)
    number = steps.rate_per_s * steps.running_s * (1.0 + costs.ahead)
    service = steps.among_s * costs.square
    slower = short * (ttft - costs.request_s) + (1.0 - short) * costs.passes * steps.decode_s
    cubes = steps.rate_per_s * service**3 / (3.0 * np.maximum(1.0 - steps.load, 1.0 - _FULL))
    variance = (
        (costs.square - 1.0) * lone**2
        + short * steps.running_s**2 / 12.0
        + short * number * costs.square * steps.among_s**2
        + steps.queue_s**2
        + costs.shared * cubes
        + (drift * slower) ** 2
    )
    return np.sqrt(variance)


def _skewed(sigmas: float) -> float:
    """What the skewness of a Poisson number adds to its quantile: (z^2 - 1) / 6 (Cornish and Fisher).

    >>> round(_skewed(1.645), 3)
    0.284
    """
    return max(sigmas**2 - 1.0, 0.0) / 6.0


def _queue(load: Array, service: Array, square: Array) -> Array:
    """Mean wait of M/G/1, W = load s E[s^2] / (2 s^2 (1 - load)); endless at full load."""
    wait = load * service * square / (2.0 * np.maximum(1.0 - load, 1.0 - _FULL))
    return np.asarray(wait)


def stacked(
    batches: Array, replies: Replies, costs: ServiceCosts, quantile: float, closed: bool = False
) -> State:
    """States over a grid: `batches` and every field (grid, points)."""
    rows = [steady(row, replies, costs, quantile, closed) for row in batches]
    fields = State.__dataclass_fields__
    return State(**{name: np.stack([getattr(row, name) for row in rows]) for name in fields})
