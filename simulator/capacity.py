"""How much fits beside the weights: the largest batch, the longest context, and what binds each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roofcast.simulator.api import Setup
from roofcast.simulator.insight import largest_batch, largest_context
from roofcast.simulator.memory import CACHE, Line, Memory

SETTING, LIMIT = "the engine's limit of sequences", "the model's context limit"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that fits in one direction, and what binds: a line of the ledger, or a limit."""

    most: int
    binds: str


def batch_capacity(where: Setup, context: int) -> Capacity:
    """Sequences of so many tokens that fit at once, or the engine's setting where that is less."""
    probe = where.decode(where.parallelism.data, context)
    held = int(np.min(largest_batch(probe)))
    allowed = probe.memory.policy.sequences * where.parallelism.data
    if where.launch.max_sequences is not None and allowed < held:
        return Capacity(allowed, SETTING)
    return Capacity(held, binding_line(probe.memory, held))


def context_capacity(where: Setup, batch: int) -> Capacity:
    """The longest context that `batch` sequences can have at once."""
    probe = where.decode(batch, 0)
    held = int(np.min(largest_context(probe)))
    allowed = where.architecture.max_context
    if allowed is not None and allowed - 1 < held:
        return Capacity(allowed - 1, LIMIT)
    return Capacity(held, binding_line(probe.memory, held))


def binding_line(memory: Memory, most: int) -> str:
    """The line that fills the memory: the cache where something fits, else the largest line."""
    if most > 0:
        return max((line for line in memory.lines if line.name in CACHE), key=_size).name
    return max((line for line in memory.lines if line.inside), key=_size).name


def _size(line: Line) -> float:
    return float(np.max(line.bytes))
