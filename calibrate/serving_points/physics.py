"""How much of a device's roofs a measured point would use, and which points no physics allows.

A closed loop that finishes r requests a second reads r prompts, each P0 long at peak, and makes
a decode step of B sequences, at least D0 long, every T seconds. The share of time both need,

    u = r P0 + D0 / T,

is 1 for a device that does nothing else at full peak and bandwidth; engines stay below 0.8. Above 1
prompts were cached, shorter or not read at all, several tokens came from one step (speculative
decoding), or the layout is not what the row says. Only judging looks at this, never forecasting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from roofcast.calibrate.serving_points.design import by_setup, context_of, output_of, prompt_of
from roofcast.calibrate.serving_points.resolve import Case
from roofcast.hardware.profile import ideal
from roofcast.simulator.prediction import forecast_pass
from roofcast.simulator.workload import Array, Workload

DOUBTFUL: Final = 0.9
"""Share of the roofs beyond which a point is kept out of fits: nothing believable comes near it."""


def roof_share(cases: Sequence[Case]) -> Array:
    """The share u of every point; 0 where the point reports too little to tell."""
    share = np.zeros(len(cases))
    for rows in by_setup(cases):
        share[rows] = _one_setup([cases[row] for row in rows])
    return share


def _one_setup(cases: Sequence[Case]) -> Array:
    setup = cases[0].setup
    perfect = replace(ideal(setup.device.id), roofs=setup.profile.roofs)
    token_s, first_s = _seconds(cases, "tpot_ms"), np.nan_to_num(_seconds(cases, "ttft_ms"))
    flight = np.array([case.point.concurrency or 1.0 for case in cases])
    output = np.array([output_of(case) for case in cases])
    life = first_s + output * token_s
    batch = np.maximum(np.floor(np.nan_to_num(flight * output * token_s / life)), 1.0)
    contexts = np.array([context_of(case) for case in cases])
    floor = setup.decode(batch, contexts).floor_s
    prompts = np.array([np.ceil(prompt_of(case)) for case in cases])
    reading = forecast_pass(
        setup.costed(Workload.prefill(1, prompts)), setup.device, perfect
    ).floor_s
    closed = np.array([case.point.load_mode == "closed_loop" for case in cases])
    used = np.where(closed, flight / life * reading, 0.0) + floor / token_s
    return np.nan_to_num(used)


def _seconds(cases: Sequence[Case], metric: str) -> Array:
    found = [case.point.measured.value(metric) for case in cases]
    return np.array([np.nan if value is None else value * 1e-3 for value in found])
