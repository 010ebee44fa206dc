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

import numpy as np

from roofcast.simulator.steady_steps import (
    FULL,
    ROUNDS,
    VALID_LOAD,
    Replies,
    ServiceCosts,
    Steps,
    long_prompts,
    steps_at,
)
from roofcast.simulator.workload import Array

__all__ = ["VALID_LOAD", "Replies", "ServiceCosts", "State", "stacked", "steady"]

_WITHIN_LIFE = 2.0 / 3.0
"""Share of the batch's variance that remains in its mean over one request: correlation falls from 1 to
0 along a life, as the lives of two requests overlap ever less."""


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


def steady(
    batch: Array, replies: Replies, costs: ServiceCosts, quantile: float, closed: bool = False
) -> State:
    """The state of every point at a mean batch each, fractions allowed, and replies of mean length."""
    met, users = np.ones_like(batch), np.full_like(batch, np.inf)
    for _ in range(ROUNDS if closed else 1):
        steps = steps_at(batch, met, replies, costs)
        ttft = _first_token(batch, users, steps, costs)
        if closed:
            users = np.maximum(batch + steps.rate_per_s * ttft, 1.0)
            met = 1.0 - 1.0 / users
    sigmas = NormalDist().inv_cdf(quantile)
    above = steps_at(batch + 1.0, met, replies, costs).mean_s
    elasticity = np.clip((above / steps.mean_s - 1.0) * batch, 0.0, 0.98)
    variance = batch * ((1.0 - batch / users) if closed else 1.0 / (1.0 - elasticity))
    variance = variance * (1.0 + steps.companions)
    peak = batch + sigmas * np.sqrt(variance) + _skewed(sigmas)
    tpot = _token_quantile(batch, met, variance, steps, replies, costs, sigmas)
    drift = elasticity * np.sqrt(variance) / np.maximum(batch, 1.0)
    spread = _first_token_deviation(batch, ttft, drift, steps, costs)
    return State(
        batch=batch,
        rate_per_s=steps.rate_per_s,
        tpot_s=steps.mean_s / costs.tokens_per_step,
        ttft_s=ttft,
        tpot_quantile_s=tpot / costs.tokens_per_step,
        ttft_quantile_s=ttft + (sigmas + _skewed(sigmas)) * spread,
        prompt_load=steps.load,
        peak_batch=np.minimum(peak, users),
    )


def _token_quantile(
    batch: Array,
    met: Array,
    variance: Array,
    steps: Steps,
    replies: Replies,
    costs: ServiceCosts,
    sigmas: float,
) -> Array:
    """A quantile of the mean step over a request: its batch drifts, and prompts it meets are few.

    The variance of the batch stays whole over a short reply, and falls to 2/3 over one as long as most.
    The number of prompts met in n steps is about Poisson: a reply of 1 / x of the mean length sees x
    times the variance, prompts of unequal length `square` times; of equal ones the batch tells already.
    """
    unequal = 1.0 + replies.variation**2
    within = 1.0 - (1.0 - _WITHIN_LIFE) / unequal**2
    slow = batch + sigmas * np.sqrt(within * variance) + _skewed(sigmas)
    drift = steps_at(slow, met, replies, costs).mean_s - steps.mean_s
    count = np.maximum(replies.mean - 1.0, 1.0) / costs.tokens_per_step
    prompts = steps.rate_per_s * steps.mean_s * steps.work_s**2 / count
    own = (sigmas + _skewed(sigmas)) * np.sqrt(prompts * (costs.square * unequal - 1.0))
    return np.asarray(steps.mean_s + np.hypot(drift, own))


def _first_token(batch: Array, users: Array, steps: Steps, costs: ServiceCosts) -> Array:
    """Mean time to the first token; `users` are endless where requests come from outside."""
    size = np.maximum(batch, 1.0)
    closed = np.isfinite(users)
    long = long_prompts(costs)
    own = np.where(costs.riding, costs.passes * costs.decode(size), 0.0) + costs.lone(size)
    # a closed loop sends the next request as a step ends, and the host takes some of the next one
    seen = np.where(costs.request_s > 0.0, steps.mean_s - costs.request_s, 0.0)
    half = steps.running_s / 2.0
    rest = np.where(closed, np.where(costs.request_s > 0.0, np.maximum(seen, half), 0.0), half)
    apart = np.where(costs.riding, 0.0, -np.expm1(-steps.rate_per_s * steps.mean_s))
    notice = rest + costs.ahead * steps.mean_s / (1.0 + apart)
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
    batch: Array, ttft: Array, drift: Array, steps: Steps, costs: ServiceCosts
) -> Array:
    """Standard deviation of the time to the first token.

    The prompt's own length, its place in a running step, prompts that share its steps, the queue, and a
    batch that drifts.
    """
    lone = costs.lone(np.maximum(batch, 1.0))
    short = 1.0 - long_prompts(costs)
    number = steps.rate_per_s * steps.running_s * (1.0 + costs.ahead)
    service = steps.among_s * costs.square
    slower = short * (ttft - costs.request_s) + (1.0 - short) * costs.passes * steps.decode_s
    cubes = steps.rate_per_s * service**3 / (3.0 * np.maximum(1.0 - steps.load, 1.0 - FULL))
    variance = (
        (costs.square - 1.0) * lone**2
        + short
        * steps.running_s**2
        * (np.maximum(steps.running_s / steps.mean_s, 1.0) / 3.0 - 0.25)
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


def stacked(
    batches: Array, replies: Replies, costs: ServiceCosts, quantile: float, closed: bool = False
) -> State:
    """States over a grid: `batches` and every field (grid, points)."""
    rows = [steady(row, replies, costs, quantile, closed) for row in batches]
    fields = State.__dataclass_fields__
    return State(**{name: np.stack([getattr(row, name) for row in rows]) for name in fields})
