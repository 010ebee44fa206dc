"""Invariants of a forecast: monotone, above the floor, parts that sum to the whole."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.hardware.profile import Band, Parameter, Profile, ideal
from roofcast.simulator.operators import Pass
from roofcast.simulator.prediction import CAUSES, Forecast, forecast_pass
from roofcast.simulator.workload import Parallelism, Workload
from tests.simulator.machines import DEVICE, model

MEASURED = Profile(
    "measured",
    "toy",
    "test",
    "by hand",
    parameters={
        name: Parameter(value, "", "assumed")
        for name, value in {
            "gemm.bandwidth_efficiency": 0.8,
            "gemm.compute_efficiency": 0.7,
            "gemm.fixed_s": 3e-6,
            "attention.bandwidth_efficiency": 0.7,
            "attention.fixed_s": 8e-6,
            "host.step_s": 2e-4,
            "host.sequence_s": 1e-5,
            "collective.latency_s": 8e-6,
        }.items()
    },
    band=Band(-0.1, 0.2, "by hand"),
    valid_range={"batch": (1, 256), "context": (1, 4096)},
)
MODELS = {
    "dense": model(4),
    "window": model(4, window=64),
    "experts": model(4, experts=True),
}
LAYOUTS = [Parallelism(), Parallelism(tensor=2), Parallelism(tensor=4, data=2, expert=8)]

sizes = st.integers(1, 4096)
models = st.sampled_from(sorted(MODELS))
layouts = st.sampled_from(LAYOUTS)


def run(
    name: str,
    batch: object,
    context: object,
    layout: Parallelism = LAYOUTS[0],
    profile: Profile = MEASURED,
) -> Forecast:
    workload = Workload.decode(batch, context)  # type: ignore[arg-type]
    return forecast_pass(Pass(MODELS[name], workload, layout), DEVICE, profile)


@given(models, layouts, sizes, st.integers(0, 100_000))
def test_time_never_falls_as_batch_or_context_grow(
    name: str, layout: Parallelism, batch: int, context: int
) -> None:
    batches = run(name, [batch, batch + 1, 2 * batch + 2], context, layout).step_time_s
    contexts = run(name, batch, [context, context + 1, 2 * context + 5], layout).step_time_s
    assert np.all(np.diff(batches) >= -1e-15)
    assert np.all(np.diff(contexts) >= -1e-15)


@given(models, layouts, sizes, st.integers(0, 100_000))
def test_never_below_the_floor(name: str, layout: Parallelism, batch: int, context: int) -> None:
    measured = run(name, batch, context, layout)
    perfect = run(name, batch, context, layout, ideal("toy"))
    assert perfect.step_time_s >= perfect.floor_s * (1 - 1e-12)
    assert measured.step_time_s >= perfect.step_time_s
    assert measured.step_time_low_s >= measured.floor_s


@given(models, layouts, sizes, st.integers(0, 100_000))
def test_parts_sum_to_the_step(name: str, layout: Parallelism, batch: int, context: int) -> None:
    step = run(name, batch, context, layout)
    operators = sum(float(time.total_s) for time in step.times) + float(step.host_s)
    causes = sum(float(step.causes[cause]) for cause in CAUSES)
    assert operators == pytest.approx(float(step.step_time_s))
    assert causes == pytest.approx(float(step.step_time_s))


@given(models, layouts, sizes, st.integers(0, 100_000))
def test_users_times_their_speed_is_the_throughput(
    name: str, layout: Parallelism, batch: int, context: int
) -> None:
    step = run(name, batch, context, layout)
    assert step.tokens_per_s_per_user * batch == pytest.approx(step.tokens_per_s)
    assert step.tokens_per_s_per_device * layout.devices == pytest.approx(step.tokens_per_s)


@given(models, sizes, st.integers(0, 100_000), st.floats(1.1, 50))
def test_scaling_both_peaks_divides_the_ideal_time(
    name: str, batch: int, context: int, factor: float
) -> None:
    faster = replace(
        DEVICE,
        memory_bandwidth_bytes_per_s=DEVICE.require("memory_bandwidth_bytes_per_s") * factor,
        peak_flops_per_s={"bf16": DEVICE.peak("bf16") * factor},
    )
    work = Pass(MODELS[name], Workload.decode(batch, context))
    base = forecast_pass(work, DEVICE, ideal("toy")).step_time_s
    scaled = forecast_pass(work, faster, ideal("toy")).step_time_s
    assert scaled * factor == pytest.approx(float(base))


def test_a_sweep_equals_its_points() -> None:
    batches, contexts = [1, 7, 64], [0, 100, 4000]
    swept = run("experts", np.array(batches)[:, None], np.array(contexts)[None, :])
    for i, batch in enumerate(batches):
        for j, context in enumerate(contexts):
            one = run("experts", batch, context)
            assert swept.step_time_s[i, j] == pytest.approx(float(one.step_time_s))
            assert swept.bound[i, j] == one.bound


def test_utilisation_is_one_where_a_roof_is_met() -> None:
    alone = run("dense", 1, 4000, profile=ideal("toy"))
    assert float(alone.mbu) == pytest.approx(1.0)
    assert float(alone.mfu) < 0.02
    crowd = run("dense", 4096, 0, profile=ideal("toy"))
    assert 0.5 < float(crowd.mfu) <= 1.0


def test_low_batch_is_memory_bound_and_batching_pays_until_compute() -> None:
    ideal_step = run("dense", [1, 16, 4096], 0, profile=ideal("toy"))
    assert ideal_step.bound.tolist() == ["memory", "memory", "compute"]
    throughput = ideal_step.tokens_per_s
    assert throughput[1] / throughput[0] > 12  # nearly 16: weights are shared


def test_kv_reads_are_not_shared() -> None:
    kv = run("dense", [1, 8], 4000)
    assert kv.kv_read_bytes[1] == 8 * kv.kv_read_bytes[0]
    assert kv.weight_bytes[1] == kv.weight_bytes[0]


def test_the_band_widens_outside_the_measured_range() -> None:
    inside, outside = run("dense", 256, 4096), run("dense", 257, 4096)
    assert not inside.extrapolates
    assert outside.extrapolates
    assert inside.step_time_high_s / inside.step_time_s == pytest.approx(np.exp(0.2))
    assert outside.step_time_high_s / outside.step_time_s == pytest.approx(np.exp(0.4))


def test_without_a_measured_band_none_is_claimed() -> None:
    bare = run("dense", 1, 100, profile=replace(MEASURED, band=None))
    assert np.isnan(bare.step_time_high_s)


def test_host_dispatch_hides_behind_long_kernels_only() -> None:
    eager = replace(
        MEASURED, parameters={"host.kernel_s": Parameter(5e-6, "s", "assumed")}, band=None
    )
    short, long = run("dense", 1, 0, profile=eager), run("dense", 1, 4_000_000, profile=eager)
    launches = sum(operator.launches for operator in short.operators)
    assert short.step_time_s == pytest.approx(launches * 5e-6)
    assert short.bound == "overhead"
    assert float(long.host_s) == 0.0
