"""Serving at a steady state: requests that arrive at random, lengths that vary.

On average B sequences decode. A request meets B others besides itself, so that its token takes

    T = D(B + 1) + (B / O) P(B + 1)          r = B / ((O - 1) T)

with D the decode step and P what one prompt adds to the steps of others: while a reply of O tokens is
written, B other prompts come in. B gives T and r without solving for anything, which is why a search
goes over B. Of the a = B / O prompts that arrive in a step the first adds F and each further one M,
since weights are read once for all; a prompt longer than a pass takes several.

    mean square step  E = D^2 + 2 D (T - D) + (1 - e^-a) G^2 + 2 G M a + M^2 (a + a^2),  G = F - M

An arriving request waits for the rest of a running step, E / 2T on average, and for the next one where
the engine has already decided on it; its own pass holds r E / T prompts of others. Where prompts exceed
the token budget they queue as in M/G/1 (Pollaczek and Khinchine).

B is a birth-death process with departures B / (O T(B)): its variance is B / (1 - e) with e the
elasticity d ln T / d ln B, whatever the lengths (processor sharing is insensitive to their
distribution; Kelly, Reversibility and Stochastic Networks, 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from roofcast.simulator.serving import Curve
from roofcast.simulator.workload import Array

_FULL = 0.995


@dataclass(frozen=True, slots=True)
class Demand:
    """Mean tokens to read of a prompt, their variation, mean tokens of a reply; one entry a point."""

    prompt: Array
    variation: Array
    reply: Array


@dataclass(frozen=True, slots=True)
class ServiceCosts:
    """What steps take, per point: curves over the batch, seconds.

    `decode` is a step without prompts, `first` what one pass of a prompt (a full one where the prompt
    is longer) adds to it, `further_s` what each further prompt adds. `pass_tokens` prompt tokens fit a
    pass. `riding`: prompts share steps with decode; otherwise decode waits. `ahead` steps are decided
    before a request is seen. `request_s` is spent outside of any step. A step brings a sequence
    `tokens_per_step`, more than one where drafts are verified. `alone_s` is a pass of a prompt that
    shares it with nothing, through one of `stages` pipeline stages.
    """

    decode: Curve
    first: Curve
    further_s: Array
    pass_tokens: Array
    request_s: Array
    riding: NDArray[np.bool_]
    ahead: Array
    tokens_per_step: Array
    stages: Array
    alone_s: Array


@dataclass(frozen=True, slots=True)
class State:
    """A steady state of each point. Times are means, or quantiles where the name says so.

    `prompt_load` is the share of the token budget in use, `peak_batch` the batch's own quantile.
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
    """The steps at one batch: mean, mean square, and what a prompt does to them."""

    decode_s: Array
    first_s: Array
    passes: Array
    mean_s: Array
    square_s2: Array


def steady(batch: Array, demand: Demand, costs: ServiceCosts, quantile: float) -> State:
    """The state of every point at a mean batch each, fractions allowed."""
    steps = _steps(batch, demand, costs)
    tpot = steps.mean_s / costs.tokens_per_step
    rate = batch / (np.maximum(demand.reply - 1.0, 1.0) * tpot)
    sigmas = NormalDist().inv_cdf(quantile)
    elasticity = _elasticity(batch, demand, costs, tpot)
    wild = 1.0 / np.maximum(1.0 - elasticity, 0.02)
    peak = batch + sigmas * np.sqrt(batch * wild) + _skewed(sigmas)
    ttft, slow, load = _first_token(rate, steps, demand, costs, quantile, wild)
    return State(
        batch=batch,
        rate_per_s=rate,
        tpot_s=tpot,
        ttft_s=ttft,
        tpot_quantile_s=_steps(peak, demand, costs).mean_s / costs.tokens_per_step,
        ttft_quantile_s=slow,
        prompt_load=load,
        peak_batch=peak,
    )


def _steps(batch: Array, demand: Demand, costs: ServiceCosts) -> _Steps:
    """Moments of the step at a mean batch: decode, and the prompts that come in meanwhile."""
    met = batch + 1.0
    decode, first = costs.decode(met), costs.first(met)
    arrivals = batch * costs.tokens_per_step / demand.reply
    passes = np.maximum(demand.prompt / costs.pass_tokens, 1.0)
    further = np.where(passes > 1.0, first * passes, costs.further_s)
    gap = np.where(passes > 1.0, 0.0, first - costs.further_s)
    some = -np.expm1(-arrivals)
    added = some * gap + arrivals * further
    width = np.where(passes > 1.0, first, further)  # a longer prompt comes in steps of a pass each
    square = some * gap**2 + 2.0 * gap * width * arrivals
    square = square + width * further * arrivals + (width * arrivals) ** 2
    mean = decode + added
    return _Steps(decode, first, passes, mean, decode**2 + 2.0 * decode * added + square)


def _elasticity(batch: Array, demand: Demand, costs: ServiceCosts, tpot: Array) -> Array:
    """d ln T / d ln B, by a step of one sequence."""
    above = _steps(batch + 1.0, demand, costs).mean_s / costs.tokens_per_step
    return np.clip((above - tpot) * batch / tpot, 0.0, 0.999)


def _first_token(
    rate: Array,
    steps: _Steps,
    demand: Demand,
    costs: ServiceCosts,
    quantile: float,
    wild: Array,
) -> tuple[Array, Array, Array]:
    """Mean and quantile of the time to the first token, and the token budget's load.

    What a request waits for beyond an idle engine is a number n of other prompts, about Poisson but
    `wild` times as variable.
    """
    long = steps.passes > 1.0
    one = np.where(long, steps.first_s * steps.passes, costs.further_s)
    shared = np.where(costs.riding, steps.decode_s, 0.0)
    running = steps.square_s2 / steps.mean_s
    crowd = np.where(long, 0.0, rate * running * costs.further_s)
    own = steps.passes * (shared + steps.first_s)
    idle = costs.request_s + own + (0.5 + costs.ahead) * steps.decode_s
    met = running / 2.0 + costs.ahead * steps.mean_s - (0.5 + costs.ahead) * steps.decode_s + crowd
    filled = demand.prompt / costs.pass_tokens
    service = filled * shared + one
    load = rate * service
    wait, tail = _queue(load, service, demand.variation, quantile)
    batched = np.minimum(filled, 1.0)  # where a pass holds many prompts, few have to queue
    mean = idle + met + batched * wait
    sigmas = NormalDist().inv_cdf(quantile)
    unit = np.where(long, steps.first_s, costs.further_s)
    number = np.maximum(met, 0.0) / np.maximum(unit, 1e-12)
    others = unit * (sigmas * np.sqrt(wild * number) + _skewed(sigmas) * (number > 0.01))
    longer = sigmas * demand.variation * one
    spread = np.sqrt(others**2 + longer**2 + (batched * tail) ** 2)
    return np.asarray(mean), np.asarray(mean + spread), np.asarray(load)


def _skewed(sigmas: float) -> float:
    """What the skewness of a Poisson number adds to its quantile: (z^2 - 1) / 6 (Cornish and Fisher).

    >>> round(_skewed(1.645), 3)
    0.284
    """
    return max(sigmas**2 - 1.0, 0.0) / 6.0


def _queue(load: Array, service: Array, variation: Array, quantile: float) -> tuple[Array, Array]:
    """Mean wait of M/G/1, and how far beyond it the quantile lies; endless at full load.

    W = load s (1 + v^2) / (2 (1 - load)); more than w with the chance load exp(-load w / W).
    """
    free = np.maximum(1.0 - load, 1e-9)
    mean = load * service * (1.0 + variation**2) / (2.0 * free)
    unlikely = np.log(np.maximum(load / (1.0 - quantile), 1.0))
    tail = np.maximum(mean / np.maximum(load, 1e-9) * unlikely - mean, 0.0)
    endless = load >= _FULL
    return np.where(endless, 1e9, mean), np.where(endless, 1e9, tail)


def stacked(batches: Array, demand: Demand, costs: ServiceCosts, quantile: float) -> State:
    """States over a grid: `batches` and every field (grid, points)."""
    rows = [steady(row, demand, costs, quantile) for row in batches]
    fields = State.__dataclass_fields__
    return State(**{name: np.stack([getattr(row, name) for row in rows]) for name in fields})
