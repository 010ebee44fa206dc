"""Forecasts of cases by the regular path: set-up, profile, forecast, steady state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.serving_points.design import (
    Design,
    by_setup,
    context_of,
    prompt_of,
)
from roofcast.calibrate.serving_points.model import Predicted, combine
from roofcast.calibrate.serving_points.resolve import Case
from roofcast.calibrate.serving_points.terms import TERMS
from roofcast.hardware.errors import InputError
from roofcast.simulator.planning.speculation import step_s
from roofcast.simulator.serving import Costs, Curve, closed_loop
from roofcast.simulator.serving_costs import BATCHES, costs
from roofcast.simulator.workload import Array


def forecast_cases(cases: Sequence[Case]) -> tuple[Predicted, Design]:
    """Every case forecast with the profile of its set-up, and the loads they were forecast for.

    Costs are made set-up by set-up; then all steady states are solved together. Raises
    UnknownSpecError for a set-up whose device lacks a number; `missing` finds those before.
    """
    design = loads(cases)
    if not cases:
        none = np.zeros(0)
        return Predicted(none, none, none, none, none.astype(bool)), design
    order, parts = [], []
    for rows in by_setup(cases):
        order += rows
        parts.append(setup_costs([cases[row] for row in rows]))
    found = _joined(parts, np.argsort(order))
    return combine(design, found, closed_loop(design.load, found, design.scheduler)), design


def _joined(parts: Sequence[Costs], order: NDArray[np.intp]) -> Costs:
    """The costs of several set-ups as those of all their points, in the order given."""

    def column(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    def curve(name: str) -> Curve:
        steps = [getattr(part, name).step_s for part in parts]
        return Curve(BATCHES, np.concatenate(steps)[order])

    names = (each.name for each in fields(Costs) if each.name not in ("decode", "shared"))
    return Costs(curve("decode"), curve("shared"), **{name: column(name) for name in names})


def missing(cases: Sequence[Case]) -> dict[int, str]:
    """Rows whose set-up can't be forecast, and why: a link or a peak that the spec does not know."""
    reasons: dict[int, str] = {}
    for rows in by_setup(cases):
        try:
            cases[rows[0]].setup.decode(1, 1)
        except InputError as error:
            reasons.update(dict.fromkeys((int(row) for row in rows), str(error)))
    return reasons


def loads(cases: Sequence[Case]) -> Design:
    """A design without terms: only the loads and schedulers of its cases."""
    size = len(cases)
    return Design(
        tuple(cases),
        np.zeros((size, BATCHES.size, len(TERMS))),
        np.zeros((size, len(TERMS))),
        np.zeros(size),
    )


def setup_costs(cases: Sequence[Case]) -> Costs:
    """What the points of one set-up take."""
    contexts = np.array([context_of(case) for case in cases])
    prompts = np.array([np.ceil(prompt_of(case)) for case in cases])
    setup, speculation = cases[0].setup, cases[0].recipe.speculation
    found = costs(setup, contexts, prompts)
    if speculation is None:
        return found
    step = step_s(setup, speculation, BATCHES, contexts[:, np.newaxis])
    return replace(found, decode=Curve(BATCHES, step / speculation.tokens_per_step))
