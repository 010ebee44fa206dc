"""Forecasts of cases by the regular path: set-up, profile, forecast, steady state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

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
from roofcast.simulator.serving import Costs, closed_loop
from roofcast.simulator.serving_costs import BATCHES, costs


def forecast_cases(cases: Sequence[Case]) -> tuple[Predicted, Design]:
    """Every case forecast with the profile of its set-up, and the loads they were forecast for.

    Raises UnknownSpecError for a set-up whose device lacks a number; `missing` finds those before.
    """
    size = len(cases)
    parts = {field.name: np.zeros(size) for field in fields(Predicted)}
    for rows in by_setup(cases):
        found = _one_setup([cases[row] for row in rows])
        for name, values in parts.items():
            values[rows] = getattr(found, name)
    saturated = parts.pop("saturated").astype(bool)
    return Predicted(**parts, saturated=saturated), loads(cases)


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


def _one_setup(cases: Sequence[Case]) -> Predicted:
    design, found = loads(cases), setup_costs(cases)
    return combine(design, found, closed_loop(design.load, found, design.scheduler))


def setup_costs(cases: Sequence[Case]) -> Costs:
    """What the points of one set-up take."""
    contexts = np.array([context_of(case) for case in cases])
    prompts = np.array([np.ceil(prompt_of(case)) for case in cases])
    return costs(cases[0].setup, contexts, prompts)
