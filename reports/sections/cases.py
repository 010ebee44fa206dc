"""What a report is about: one model on some devices, forecast over the points that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from roofcast.reports import units
from roofcast.simulator.api import Setup, grid
from roofcast.simulator.insight import Batching, batching
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.tables import rows
from roofcast.simulator.workload import Array

_FINEST = 2  # curves and the interactive view: points per doubling of the batch
_LARGEST_BATCH, _LONGEST_CONTEXT, _SHORTEST_CONTEXT = 1024, 131_072, 128


@dataclass(frozen=True)
class Case:
    """One setup under a short label, and its batches and contexts."""

    where: Setup
    label: str
    batches: tuple[int, ...]
    contexts: tuple[int, ...]

    @cached_property
    def points(self) -> Forecast:
        """Every batch at every context."""
        return self.where.decode(*grid(self.batches, self.contexts))

    @cached_property
    def batching(self) -> Batching:
        """How far batching pays at the shortest context."""
        return batching(self.where.decode(1, min(self.contexts)))

    @property
    def devices(self) -> int:
        """Devices of the replica."""
        return self.where.parallelism.devices


def label_of(where: Setup, others: Sequence[Setup]) -> str:
    """A device's id, with how many and the engine where either tells it apart from another.

    >>> from roofcast.simulator.api import setup
    >>> h100 = setup("llama-3.1-8b", "h100-sxm")
    >>> label_of(h100, [h100])
    'h100-sxm-80gb'
    """
    count = where.parallelism.devices
    name = where.device.id if count == 1 else f"{count} x {where.device.id}"
    alike = [each for each in others if each.device.id == where.device.id]
    return name if len(alike) < 2 else f"{name} ({where.profile.engine})"


def build(setups: Sequence[Setup], batches: Sequence[int], contexts: Sequence[int]) -> list[Case]:
    """A case for each setup, all at the same points."""
    shape = (tuple(sorted(batches)), tuple(sorted(contexts)))
    return [Case(where, label_of(where, setups), *shape) for where in setups]


def many_batches(case: Case) -> Array:
    """Batches of a curve, those asked for among them."""
    steps = _FINEST * int(np.log2(_LARGEST_BATCH))
    fine = np.round(2.0 ** (np.arange(steps + 1) / _FINEST))
    return np.unique(np.concatenate([fine, np.asarray(case.batches, dtype=float)]))


def many_contexts(case: Case) -> Array:
    """Contexts of a curve, up to the model's limit, those asked for among them."""
    limit = case.where.architecture.max_context or _LONGEST_CONTEXT
    longest = min(_LONGEST_CONTEXT, limit - 1)
    powers = 2.0 ** np.arange(np.log2(_SHORTEST_CONTEXT), np.log2(longest) + 1e-9)
    return np.unique(np.concatenate([powers, np.asarray(case.contexts, dtype=float)]))


def all_rows(cases: Sequence[Case]) -> list[dict[str, object]]:
    """The points of all cases as rows, with the columns of `roofcast predict`."""
    return [row for case in cases for row in rows(case.points)]


def subject(cases: Sequence[Case]) -> tuple[str, str]:
    """Title and subtitle."""
    from roofcast.reports import words

    first = cases[0].points
    names = ", ".join(case.label for case in cases)
    batches, contexts = cases[0].batches, cases[0].contexts
    return (
        f"Decode of {first.work.architecture.name} on {names}",
        f"{words.weight_format(first.work.architecture)} weights, {first.work.kv_dtype} cache; "
        f"{_spread('batch', [str(each) for each in batches])}, "
        f"{_spread('context', [units.tokens(each) for each in contexts])}",
    )


def _spread(name: str, values: Sequence[str]) -> str:
    return (
        f"{name} {', '.join(values)}" if len(values) < 6 else f"{name} {values[0]} to {values[-1]}"
    )
