"""The steps of a steady state: how long they are at a mean batch, and how prompts queue for them.

open_loop.py has the equations, and makes what users see of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.simulator.serving import Curve
from roofcast.simulator.workload import Array

VALID_LOAD: Final = 0.8
"""Share of time that prompts may take: up to there steady states were checked against simulations."""

FULL: Final = 0.995
ROUNDS: Final = 5


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
class Steps:
    """Steps at one batch: decode, what prompts do to it, and how they queue; one entry a point.

    `work_s` is what a prompt adds, `among_s` where it shares its pass with others.
    `running_s` is the mean length of the step that an arrival meets, `load` the share of time that
    prompts take, `queue_s` the wait behind them, `companions` begin to decode with a request.
    """

    decode_s: Array
    among_s: Array
    work_s: Array
    mean_s: Array
    running_s: Array
    rate_per_s: Array
    load: Array
    queue_s: Array
    companions: Array


def steps_at(batch: Array, met: Array, replies: Replies, costs: ServiceCosts) -> Steps:
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
    for _ in range(ROUNDS):
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
    return Steps(decode, among, work, mean, running, rate, load, queue, companions)


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

    Prompts of one pass come at random, a Poisson number in a step; those of several take turns. Where
    decode waits for prompts, both have steps of their own.
    """
    long = long_prompts(costs)
    gap = lone - among
    added = arrivals * (among + first * gap)
    short = arrivals * (first * (gap**2 + 2.0 * gap * among) + among**2 * costs.square)
    square = (1.0 - long) * (short + (among * arrivals) ** 2) + long * among / costs.passes * added
    together = np.where(costs.riding, 2.0 * decode * added, 0.0)
    return np.asarray((decode**2 + together + square) / (decode + added))


def long_prompts(costs: ServiceCosts) -> Array:
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


def _queue(load: Array, service: Array, square: Array) -> Array:
    """Mean wait of M/G/1, W = load s E[s^2] / (2 s^2 (1 - load)); endless at full load."""
    wait = load * service * square / (2.0 * np.maximum(1.0 - load, 1.0 - FULL))
    return np.asarray(wait)
