"""The design of a fit: for each point, the terms of its decode step over batches and of its prefill."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.serving_points.resolve import Case, Profiles
from roofcast.calibrate.serving_points.terms import TERMS, pass_terms
from roofcast.simulator.api import Setup
from roofcast.simulator.passes import Pass
from roofcast.simulator.serving import Load, Scheduler
from roofcast.simulator.workload import Array, Workload

BATCHES = np.array(
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024], dtype=float
)


@dataclass(frozen=True)
class Design:
    """Everything a forecast of the points needs, as arrays: one row a point.

    `decode` is (points, batches, terms), `prefill` (points, terms) for one whole prompt; lengths are
    means.
    """

    cases: tuple[Case, ...]
    decode: Array
    prefill: Array

    @cached_property
    def load(self) -> Load:
        """The closed loop of every point."""
        low = np.array([case.lengths.low for case in self.cases])
        mean = (1.0 + low) / 2.0
        return Load(
            concurrency=np.array([case.point.concurrency or 1.0 for case in self.cases]),
            prompt=np.array([prompt_of(case) for case in self.cases]),
            output=np.array([(case.point.osl or 1.0) for case in self.cases]) * mean,
            spread=low,
        )

    @cached_property
    def engines(self) -> NDArray[np.str_]:
        """Engine of every point."""
        return np.array([case.setup.profile.engine for case in self.cases])

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Design:
        """The design of some of the points."""
        picked = np.arange(len(self.cases))[rows]
        return Design(tuple(self.cases[i] for i in picked), self.decode[rows], self.prefill[rows])


def prompt_of(case: Case) -> float:
    """Mean prompt of a case, in tokens, at least one."""
    return max(1.0, (case.point.isl or 0.0) * (1.0 + case.lengths.low) / 2.0)


def context_of(case: Case) -> float:
    """Mean context while a reply is written: the prompt and half the reply."""
    output = (case.point.osl or 1.0) * (1.0 + case.lengths.low) / 2.0
    return float(round(prompt_of(case) + output / 2.0))


def design(cases: Sequence[Case]) -> Design:
    """Build the design: one pass over the grid for each set-up, all its points together."""
    decode = np.zeros((len(cases), BATCHES.size, len(TERMS)))
    prefill = np.zeros((len(cases), len(TERMS)))
    for rows in _by_setup(cases):
        setup = cases[rows[0]].setup
        contexts = np.array([context_of(cases[row]) for row in rows])
        prompts = np.array([np.ceil(prompt_of(cases[row])) for row in rows])
        found, back = np.unique(contexts, return_inverse=True)
        work = Workload.decode(BATCHES[np.newaxis, :], found[:, np.newaxis])
        terms = pass_terms(_pass(setup, work), setup.device, setup.profile)
        decode[rows] = np.moveaxis(terms, 0, -1)[back]
        found, back = np.unique(prompts, return_inverse=True)
        terms = pass_terms(_pass(setup, Workload.prefill(1, found)), setup.device, setup.profile)
        prefill[rows] = terms.T[back]
    return Design(tuple(cases), decode, prefill)


def _by_setup(cases: Sequence[Case]) -> Iterable[list[int]]:
    groups: dict[int, list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault(id(case.setup), []).append(index)
    return groups.values()


def _pass(setup: Setup, workload: Workload) -> Pass:
    return Pass(
        setup.architecture,
        workload,
        setup.parallelism,
        setup.kv_dtype,
        setup.activation_dtype,
        setup.skew,
        engine=setup.kernels or setup.profile.engine,
    )
