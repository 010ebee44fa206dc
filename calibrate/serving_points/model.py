"""Forecasts of a design under a set of knob values: vectorised, for fits that ask often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.serving_points.design import Design
from roofcast.calibrate.serving_points.knobs import Panel, Values
from roofcast.calibrate.serving_points.terms import HOST, TERMS, WAITS
from roofcast.simulator.serving import Costs, Curve, Static, Steady, closed_loop, static_batch
from roofcast.simulator.serving_costs import BATCHES
from roofcast.simulator.workload import Array

# What a pass with prompts and decode pays once (see serving_costs.shared_s).
_SHARED: Final = (
    "gemm.roof", "experts.roof", "experts.fixed", "gemm.kernels", "attention.kernels",
    "state.kernels", "elementwise.kernels", "collectives",
)  # fmt: skip
_HOST_TERMS: Final = np.array([term in HOST for term in TERMS], dtype=float)
_WAIT_TERMS: Final = np.array([term in WAITS for term in TERMS], dtype=float)
_SHARED_TERMS: Final = np.array([term in _SHARED for term in TERMS], dtype=float)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Forecasts of points, in SI units; `saturated` where memory sets the batch of a closed loop."""

    tpot_s: Array
    ttft_s: Array
    e2e_s: Array
    batch: Array
    saturated: NDArray[np.bool_]


def predict(panel: Panel, values: Values) -> Predicted:
    """Forecast every point of the panel's design."""
    design, found = panel.design, costs(panel, values)
    steady = closed_loop(design.load, found, design.scheduler)
    return combine(design, found, steady)


def combine(design: Design, found: Costs, steady: Steady) -> Predicted:
    """The steady state of closed loops, and static batches for the other points."""
    static = _static(design, found)
    closed, load = design.closed, design.load
    whole = steady.ttft_s + (load.output - 1.0) * steady.tpot_s
    return Predicted(
        tpot_s=np.where(closed, steady.tpot_s, static.tpot_s),
        ttft_s=np.where(closed, steady.ttft_s, static.ttft_s),
        e2e_s=np.where(closed, whole, static.e2e_s),
        batch=np.where(closed, steady.batch, np.minimum(load.concurrency, found.most)),
        saturated=np.where(closed, steady.saturated, load.concurrency > found.most),
    )


def costs(panel: Panel, values: Values) -> Costs:
    """The costs of every point under knob values."""
    design = panel.design
    turned = panel.multipliers("decode", values)
    device = _over(design.decode, turned * (1.0 - _HOST_TERMS))
    dispatch = _over(design.decode, panel.multipliers("dispatch", values))
    decode = np.maximum(device, dispatch) + _over(design.decode, turned * _HOST_TERMS)
    shared = _over(design.decode, turned * _SHARED_TERMS)
    reading = panel.multipliers("prefill", values)
    return Costs(
        decode=Curve(BATCHES, decode),
        shared=Curve(BATCHES, shared),
        prompt_s=_sum(design.prefill, reading * (1.0 - _WAIT_TERMS)),
        weights_s=_sum(design.prefill, reading * _WAIT_TERMS),
        pass_s=_sum(design.prefill, panel.multipliers("pass", values)),
        request_s=_sum(design.prefill, panel.multipliers("request", values)),
        most=design.most,
    )


def _over(decode: Array, turned: Array) -> Array:
    """(points, batches): the turned terms of a decode step, summed."""
    return np.asarray(np.matmul(decode, turned[:, :, np.newaxis])[..., 0])


def _sum(terms: Array, turned: Array) -> Array:
    return np.asarray((terms * turned).sum(axis=1))


def _static(design: Design, found: Costs) -> Static:
    load = design.load
    together = np.minimum(load.concurrency, found.most)
    passes = np.maximum(together * load.prompt / design.scheduler.token_budget, 1.0)
    prompts = found.request_s + passes * found.pass_time_s(together / passes)
    step = found.decode(np.maximum(together, 1.0))
    return static_batch(load.concurrency, load.output, step, prompts, found.most)
