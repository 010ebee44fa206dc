"""The design of a fit: for each point, the terms of its decode step over batches and of its prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.serving_points.resolve import Case
from roofcast.calibrate.serving_points.terms import TERMS, WAITS, pass_terms
from roofcast.hardware.profile import Parameter, Profile
from roofcast.simulator.api import Setup
from roofcast.simulator.engines import find_engine
from roofcast.simulator.planning.speculation import draft_setup
from roofcast.simulator.prompt_profile import prompt_profile
from roofcast.simulator.serving import Load, Scheduler
from roofcast.simulator.serving_costs import BATCHES, WEIGHED, capacity
from roofcast.simulator.workload import Array, Workload

CLOSED: Final = ("closed_loop",)


@dataclass(frozen=True)
class Design:
    """Everything a forecast of the points needs, as arrays: one row a point.

    `decode` is (points, batches, terms), `prefill` (points, terms) for one prompt; `most` is the
    sequences that memory holds at once.
    """

    cases: tuple[Case, ...]
    decode: Array
    prefill: Array
    most: Array

    @cached_property
    def load(self) -> Load:
        """The load of every point; lengths are means."""
        low = np.array([case.lengths.low for case in self.cases])
        return Load(
            concurrency=np.array([case.point.concurrency or 1.0 for case in self.cases]),
            prompt=np.array([prompt_of(case) for case in self.cases]),
            output=np.array([output_of(case) for case in self.cases]),
            spread=low,
        )

    @cached_property
    def scheduler(self) -> Scheduler:
        """How every point's engine fits prompts in."""
        engines = [find_engine(case.setup.profile.engine) for case in self.cases]
        recipes = [case.recipe for case in self.cases]
        budgets = [r.token_budget or e.token_budget for r, e in zip(recipes, engines, strict=True)]
        return Scheduler(
            prompts_first=np.array([engine.prompts_first for engine in engines]),
            token_budget=np.array(budgets, dtype=float),
            poll_steps=np.array([recipe.poll_steps for recipe in recipes]),
            wait_steps=np.array([recipe.wait_steps for recipe in recipes]),
        )

    @cached_property
    def closed(self) -> NDArray[np.bool_]:
        """Points with a constant number of requests in flight; the others start together."""
        return np.array([case.point.load_mode in CLOSED for case in self.cases])

    def measured(self, metric: str) -> Array:
        """A metric as measured, in the file's unit; NaN where it is not reported."""
        found = [case.point.measured.value(metric) for case in self.cases]
        return np.array([np.nan if value is None else value for value in found])

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Design:
        """The design of some of the points."""
        picked = np.arange(len(self.cases))[rows]
        cases = tuple(self.cases[i] for i in picked)
        return Design(cases, self.decode[rows], self.prefill[rows], self.most[rows])


def prompt_of(case: Case) -> float:
    """Mean prompt of a case, in tokens, at least one."""
    return max(1.0, (case.point.isl or 0.0) * _mean(case))


def output_of(case: Case) -> float:
    """Mean reply of a case, in tokens, at least one."""
    return max(1.0, (case.point.osl or 1.0) * _mean(case))


def context_of(case: Case) -> float:
    """Mean context while a reply is written, whole tokens: the prompt and half the reply."""
    return float(round(prompt_of(case) + output_of(case) / 2.0))


def _mean(case: Case) -> float:
    return (1.0 + case.lengths.low) / 2.0


def design(cases: Sequence[Case]) -> Design:
    """Build the design: one pass over the batches for each set-up, all its points together."""
    decode = np.zeros((len(cases), BATCHES.size, len(TERMS)))
    prefill = np.zeros((len(cases), len(TERMS)))
    most = np.zeros(len(cases))
    for rows in by_setup(cases):
        setup = cases[rows[0]].setup
        contexts = np.array([context_of(cases[row]) for row in rows])
        found, back = np.unique(contexts, return_inverse=True)
        decode[rows] = _decode_terms(cases[rows[0]], found)[back]
        most[rows] = capacity(setup, found)[back]
        prompts = np.array([np.ceil(prompt_of(cases[row])) for row in rows])
        found, back = np.unique(prompts, return_inverse=True)
        groups = setup.parallelism.data
        reading = Workload.prefill(groups, found)
        prefill[rows] = _terms(setup, reading, prompt_profile(_unscaled(setup.profile)), WEIGHED)[
            back
        ]
        prefill[np.ix_(rows, _PER_PROMPT)] /= groups
    return Design(tuple(cases), decode, prefill, most)


def by_setup(cases: Sequence[Case]) -> Iterable[list[int]]:
    """Indices of the cases that share a set-up."""
    groups: dict[int, list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault(id(case.setup), []).append(index)
    return groups.values()


_PER_PASS: Final = (*WAITS, "state.kernels", "launches", "layers", "sequences", "steps")
_PER_PROMPT: Final = [index for index, term in enumerate(TERMS) if term not in _PER_PASS]


def _decode_terms(case: Case, contexts: Array) -> Array:
    """(contexts, batches, terms) of a decode step for each token that it brings a sequence."""
    batches, cached = BATCHES[np.newaxis, :], contexts[:, np.newaxis]
    setup, speculation = case.setup, case.recipe.speculation
    if speculation is None:
        return _terms(setup, Workload.decode(batches, cached), setup.profile)
    verify = Workload.decode(batches, cached, speculation.tokens + 1)
    terms = _terms(setup, verify, setup.profile)
    drafter = draft_setup(setup, speculation)
    if drafter is not None:
        one = _terms(drafter, Workload.decode(batches, cached), setup.profile)
        terms = terms + speculation.tokens * one
    return terms / speculation.tokens_per_step


def _terms(setup: Setup, work: Workload, profile: Profile, weighed: tuple[str, ...] = ()) -> Array:
    """Terms of a pass, the last axis; see `pass_terms`."""
    found = pass_terms(setup.costed(work), setup.device, profile, weighed)
    return np.moveaxis(found, 0, -1)


def _unscaled(profile: Profile) -> Profile:
    one = Parameter(1.0, "1", "assumed")
    return replace(profile, parameters={**profile.parameters, "prefill.scale": one})
