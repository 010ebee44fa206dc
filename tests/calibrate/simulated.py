"""Calibrations made of known parameters, noise and outliers instead of a machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roofcast.calibrate.counted import operators_of
from roofcast.calibrate.overheads import decode_runs, forecast_s
from roofcast.calibrate.plan import Plan, Target, make_plan
from roofcast.calibrate.samples import Measurement, Task
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Parameter, Profile
from roofcast.simulator.roofline import Roofs, operator_time

GB = 1e9
DEVICE = Accelerator(
    id="cpu-simulated", name="Simulated CPU", vendor="none", kind="cpu",
    memory_capacity_bytes=int(64 * GB), memory_usable_bytes=int(64 * GB), compute_units=2,
    memory_bandwidth_bytes_per_s=27 * GB,
    peak_flops_per_s={"bf16": 1.4e12, "fp32": 0.3e12},
)  # fmt: skip
TARGET = Target(DEVICE, "bf16", 64 * GB, 25 * GB)
TRUTH = {
    "gemm.bandwidth_efficiency.bf16": 0.75,
    "gemm.compute_efficiency.bf16": 0.6,
    "gemm.bandwidth_growth.bf16": 0.06,
    "gemm.fixed_s.bf16": 12e-6,
    "attention.bandwidth_efficiency": 0.5,
    "attention.compute_efficiency": 0.015,
    "attention.fixed_s": 30e-6,
    "attention.activation_factor": 15.0,
    "experts.bandwidth_efficiency": 0.7,
    "experts.bandwidth_growth.bf16": 0.06,
    "experts.fixed_s": 300e-6,
    "experts.matrix_s": 25e-6,
    "elementwise.bandwidth_efficiency.norm_residual": 0.4,
    "elementwise.fixed_s.norm_residual": 20e-6,
    "elementwise.bandwidth_efficiency.activation": 0.6,
    "elementwise.fixed_s.activation": 15e-6,
    "elementwise.bandwidth_efficiency.sampler": 0.1,
    "elementwise.fixed_s.sampler": 40e-6,
    "host.step_s": 2e-3,
    "host.layer_s": 90e-6,
    "host.sequence_s": 25e-6,
}


def truth() -> Profile:
    """The profile that the simulated machine obeys."""
    parameters = {name: Parameter(value, "", "assumed") for name, value in TRUTH.items()}
    return Profile("truth", DEVICE.id, "torch", "made up", parameters)


def simulated(seed: int, *, quick: bool = True, outliers: float = 0.03) -> list[Measurement]:
    """What a plan would have measured: 4 % noise a task, some tasks three times too slow."""
    plan = make_plan(TARGET, quick=quick, seed=seed)
    random = np.random.default_rng(seed)
    found = []
    for task in (*plan.kernels, *plan.runs):
        factor = np.exp(random.normal(0.0, 0.04))
        if random.random() < outliers and task.kind != "read":
            factor *= 3.0
        found.append(measurement(task, expected_s(task) * factor))
    return found


def measurement(task: Task, seconds: float) -> Measurement:
    """Five equal samples on a quiet machine."""
    return Measurement(task.kind, task.facts, (float(seconds),) * 5, others=0.0, stolen=0.0)


def expected_s(task: Task) -> float:
    """What the true parameters say."""
    if task.kind in ("read", "copy"):
        return task.whole("bytes") / (27 * GB)
    if task.kind == "decode":
        (runs,) = decode_runs([measurement(task, 1.0)], TARGET.scale)
        return float(forecast_s(runs, DEVICE, truth())[0])
    roofs = Roofs(DEVICE, truth())
    times = [operator_time(operator, roofs).total_s for operator in operators_of([task])]
    return float(sum(time[0] for time in times))


__all__ = ["DEVICE", "TARGET", "TRUTH", "Plan", "Sequence", "simulated", "truth"]
