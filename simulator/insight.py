"""What a forecast means: how far batching pays, and how much fits.

Everything here is read off forecasts and the memory ledger; no constant of any device enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.errors import CapacityError
from roofcast.simulator.api import Setup
from roofcast.simulator.memory import memory
from roofcast.simulator.prediction import CAUSES, Forecast, forecast_pass
from roofcast.simulator.workload import Array, Parallelism, Workload

_MOST = 2**20
_PER_OCTAVE = 4
_NODE = 8  # devices of one server, where the spec does not say how many a link connects


@dataclass(frozen=True, slots=True)
class Batching:
    """How far batching pays at one context.

    Up to `batch` the time that all sequences of a step share is the larger part of it; beyond, what
    each sequence adds is. `cause` is what grows there (one of CAUSES), or "memory" where the cache
    fills the device first, or "range" where nothing of the kind happens up to `_MOST`. `limit` is
    the largest batch that fits.
    """

    batch: int
    cause: str
    limit: int


def batching(at: Forecast) -> Batching:
    """How far batching pays at the context of a forecast of one point.

    With a step time t(b) = shared + b x own the two parts are equal where the elasticity
    d ln t / d ln b is 1/2, which is also where tokens/s reach half of what any batch can give. The
    elasticity is taken over a doubling, log2(t(2b) / t(b)), and assigned to its middle, b sqrt(2):
    exact for the linear form, and insensitive to the steps of a measured curve. The last crossing
    counts: with few tokens, each new one brings experts of its own, and batching pays only later.
    """
    limit = int(np.min(largest_batch(at)))
    batches = _octaves(at, max(limit, 1))
    swept = _at_batches(at, batches)
    times = swept.step_time_s
    if len(batches) <= _PER_OCTAVE:
        return Batching(limit, "memory", limit)
    elasticity = np.log2(times[_PER_OCTAVE:] / times[:-_PER_OCTAVE])
    elasticity /= np.log2(batches[_PER_OCTAVE:] / batches[:-_PER_OCTAVE])
    middles = np.sqrt(batches[_PER_OCTAVE:] * batches[:-_PER_OCTAVE])
    paying = np.flatnonzero(elasticity <= 0.5)
    if paying.size == 0:
        return Batching(int(batches[0]), _growing(swept, 0), limit)
    last = int(paying[-1])
    if last == len(middles) - 1:
        return Batching(limit, "memory" if limit < _MOST else "range", limit)
    knee = _crossing(middles[last : last + 2], elasticity[last : last + 2])
    return Batching(max(round(knee), 1), _growing(swept, last), limit)


def largest_batch(forecast: Forecast) -> NDArray[np.int64]:
    """The largest batch that fits at each context, 0 where not even one sequence does."""
    work = forecast.work
    context = np.array(np.broadcast_to(work.workload.context, work.workload.context.shape))

    def fits(batch: Array) -> NDArray[np.bool_]:
        size = np.maximum(batch, 1.0)
        tried = replace(work, workload=Workload.decode(size, context))
        return np.broadcast_to(memory(tried, forecast.device).fits, context.shape)

    return _largest(fits, context.shape)


def largest_context(forecast: Forecast) -> NDArray[np.int64]:
    """The longest context that fits at each batch, 0 where none does; not the model's own limit."""
    work = forecast.work
    batch = work.workload.batch

    def fits(context: Array) -> NDArray[np.bool_]:
        tried = replace(work, workload=Workload.decode(batch, context))
        return np.broadcast_to(memory(tried, forecast.device).fits, batch.shape)

    return _largest(fits, batch.shape)


def _largest(
    fits: Callable[[Array], NDArray[np.bool_]], shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """The largest whole number for which `fits`, per point, by bisection; what fits comes first."""
    low, high = np.zeros(shape), np.full(shape, float(_MOST))
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        good = fits(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.asarray(np.where(fits(high), high, low), dtype=np.int64)


def _octaves(at: Forecast, limit: int) -> Array:
    """Batches from 1 to `limit`, four to a doubling, in whole sequences per group of ranks."""
    ranks = at.work.parallelism
    groups = ranks.data * ranks.pipeline
    steps = int(_PER_OCTAVE * math.log2(max(limit / groups, 1)))
    sizes = 2.0 ** (np.arange(steps + 1) / _PER_OCTAVE)
    return np.round(sizes) * groups if limit >= groups else np.array([float(limit)])


def _at_batches(at: Forecast, batches: Array) -> Forecast:
    workload = Workload.decode(batches, float(np.ravel(at.context)[0]))
    return forecast_pass(replace(at.work, workload=workload), at.device, at.profile)


def _growing(swept: Forecast, index: int) -> str:
    """The cause that adds most time from one batch to its double."""
    shape = swept.step_time_s.shape
    growth = {
        name: np.broadcast_to(swept.causes[name], shape)[index + _PER_OCTAVE]
        - np.broadcast_to(swept.causes[name], shape)[index]
        for name in CAUSES
    }
    return max(growth, key=lambda name: float(growth[name]))


def _crossing(positions: Array, values: Array) -> float:
    """Where the values cross 1/2, linear in the logarithm of the position."""
    part = (0.5 - values[0]) / (values[1] - values[0])
    return float(positions[0] * (positions[1] / positions[0]) ** part)


def smallest_tensor(where: Setup, context: int, batch: int) -> int:
    """The smallest tensor parallelism (1, 2, 4, ...) in which `batch` sequences of `context` fit.

    CapacityError where all devices that one link connects do not hold them.
    """
    most = where.device.scale_up_max_devices or _NODE
    ranks = 1
    while ranks <= most:
        spread = replace(where, parallelism=Parallelism(tensor=ranks))
        if np.all(spread.decode(batch, context).memory.fits):
            return ranks
        ranks *= 2
    raise CapacityError(
        f"{where.architecture.name} with {batch} sequences of {context} tokens does not fit on "
        f"the {ranks // 2} x {where.device.id} that one link connects"
    )
