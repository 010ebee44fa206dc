"""What a map over batch and context shows, as plain values: the bound of each step, what fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofcast.reports.figure_data import Array
from roofcast.simulator.api import Setup, grid
from roofcast.simulator.insight import largest_batch
from roofcast.simulator.prediction import BOUNDS, Forecast

_PER_OCTAVE = 4
_LARGEST_BATCH, _SHORTEST_CONTEXT, _LONGEST_CONTEXT = 1024, 128, 131_072
_MEMORY = ("weights", "kv_cache", "activations")


@dataclass(frozen=True, slots=True)
class Heat:
    """Decode steps over a grid: rows are batches, columns contexts.

    `region` names what bounds each step: a bound of `Forecast.bound`, with memory split into what is
    read most (weights, kv_cache, activations). `share` is the part of the step that the bound takes,
    `limit` the largest batch that fits at each context.
    """

    batch: Array
    context: Array
    tokens_per_s: Array
    region: NDArray[np.str_]
    share: Array
    limit: Array


def heat(where: Setup) -> Heat:
    """The map of a setup, up to batch 1024 and the model's longest context."""
    longest = min(_LONGEST_CONTEXT, (where.architecture.max_context or _LONGEST_CONTEXT) - 1)
    batch, context = _octaves(1, _LARGEST_BATCH), _octaves(_SHORTEST_CONTEXT, longest)
    steps = where.decode(*grid(batch, context))
    region, share = regions(steps)
    limit = largest_batch(where.decode(1, context)).astype(float)
    return Heat(batch, context, steps.tokens_per_s, region, share, limit)


def regions(steps: Forecast) -> tuple[NDArray[np.str_], Array]:
    """What bounds each step, memory split by what is read most, and its share of the step."""
    shape = steps.step_time_s.shape
    causes = {name: np.broadcast_to(value, shape) for name, value in steps.causes.items()}
    reads = np.stack([causes[name] for name in _MEMORY])
    most_read = np.asarray(_MEMORY)[np.argmax(reads, axis=0)]
    groups = np.stack([reads.sum(axis=0), *(causes[name] for name in BOUNDS[1:])])
    bound = np.broadcast_to(steps.bound, shape)
    region = np.where(bound == "memory", most_read, bound)
    return region, np.max(groups, axis=0) / steps.step_time_s


def _octaves(low: float, high: float) -> Array:
    steps = int(np.floor(_PER_OCTAVE * np.log2(high / low)))
    return np.unique(np.round(low * 2.0 ** (np.arange(steps + 1) / _PER_OCTAVE)))
