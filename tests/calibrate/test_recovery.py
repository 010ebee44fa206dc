"""Simulated machines with known parameters: the fit must find them, and admit what it can't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from roofcast.calibrate.fit import NEVER_THE_BOUND, Fitted, fit_kernels
from roofcast.calibrate.fit_links import fit_links
from roofcast.calibrate.fitting import Estimate, Fit
from roofcast.calibrate.overheads import Runs, decode_runs, fit_overheads, with_kernel_errors
from roofcast.calibrate.replicates import no_surer_than, replication
from roofcast.calibrate.residuals import kernel_residuals
from roofcast.calibrate.samples import Measurement
from roofcast.calibrate.steadying import steadied, wandering, with_drift
from roofcast.calibrate.validation import COVERAGE, band, coverage, interval, validate
from roofcast.hardware.profile import Parameter, Profile
from tests.calibrate.simulated import DEVICE, TRUTH, simulated

SEEDS = range(3)


def fitter(known: Fitted, runs: Sequence[Runs]) -> Fitted:
    return fit_overheads(known, runs, "simulation")


def fitted(measured: list[Measurement]) -> Fitted:
    kernels = fit_kernels(DEVICE, "torch", measured, "simulation")
    runs = decode_runs(measured, "small")
    return with_kernel_errors(fitter(kernels, runs), runs, fitter)


@pytest.fixture(scope="module")
def fits() -> list[Fitted]:
    return [fitted(simulated(seed, quick=False)) for seed in SEEDS]


def deviations(found: Fitted) -> list[float]:
    """(estimate - truth) / standard error of every parameter."""
    z = []
    for name, truth in TRUTH.items():
        parameter = found.profile.parameters[name]
        assert parameter.standard_error is not None, f"{name}: {parameter}"
        z.append((parameter.value - truth) / parameter.standard_error)
    return z


def test_parameters_are_recovered_within_three_standard_errors(fits: list[Fitted]) -> None:
    """4 % noise, 3 % of the tasks three times too slow. Of 57 normal deviates 0.15 lie beyond 3."""
    z = np.abs([deviations(found) for found in fits])
    assert np.sum(z > 3) <= 1
    assert np.max(z) < 5


def test_standard_errors_are_neither_too_wide_nor_too_narrow(fits: list[Fitted]) -> None:
    """Deviations in units of their standard errors have a spread of 1; 57 tell it to 10 %."""
    z = np.array([deviations(found) for found in fits])
    assert 0.65 < np.sqrt(np.mean(z**2)) < 1.35


def test_standard_errors_are_small_enough_to_mean_something(fits: list[Fitted]) -> None:
    limits = {"gemm.bandwidth_efficiency.bf16": 0.05, "attention.fixed_s": 0.1, "host.layer_s": 0.6}
    for name, limit in limits.items():
        error = fits[0].profile.parameters[name].standard_error
        assert error is not None
        assert error < limit * TRUTH[name]


def test_a_machine_that_wanders_widens_every_error() -> None:
    """A reference 10 % slower at the end than at the start: fifths at 0, 2.5, 5, 7.5 and 10 %."""
    turns = [
        Measurement("reference", {"turn": i}, (np.exp(0.025 * (i // 20)),) * 5, at_s=float(i))
        for i in range(100)
    ]
    spread = np.std([0.0, 0.025, 0.05, 0.075, 0.1], ddof=1)
    assert wandering(turns[::-1]) == pytest.approx(spread)
    assert wandering(turns[:9]) == 0.0  # too few to tell
    known = {
        "host.step_s": Parameter(2.0, "s", "fitted", 0.06),
        "gap": Parameter(1.0, "1", "assumed"),
    }
    profile = Profile("p", DEVICE.id, "torch", "made up", known)
    widened = with_drift(Fitted(DEVICE, profile, {}), turns).profile.parameters
    assert widened["host.step_s"].standard_error == pytest.approx(np.hypot(0.06, 2.0 * spread))
    assert widened["gap"].standard_error is None


def test_no_parameter_is_surer_than_two_visits_agree() -> None:
    """Visits 20 % apart: medians are known to 10 %, whatever residuals of 5 % say."""
    twice = [
        Measurement("experts", {"rows": i}, (1.0, np.exp(0.2)), ends=((1.0, 1), (2.0, 1)))
        for i in range(4)
    ]
    assert replication(twice) == pytest.approx(0.1)
    assert replication(twice[:3]) == 0.0  # too few to tell
    close = Fit((Estimate("a", 1.0, 0.02, "ok"),), np.eye(1), np.array([0.05, -0.05]))
    assert no_surer_than(close, 0.1)["a"].standard_error == pytest.approx(0.04)
    assert no_surer_than(close, 0.03) is close


def test_what_a_slow_machine_measured_counts_at_its_usual_pace() -> None:
    """The reference takes twice as long from 500 s on; a task visited before and after agrees."""
    turns = [
        Measurement("reference", {"turn": i}, (1.0 if i < 60 else 2.0,), at_s=10.0 * i)
        for i in range(100)
    ]
    task = Measurement(
        "gemm", {"rows": 1}, (3.0, 3.0, 6.0), at_s=900.0, visits=2, ends=((100.0, 2), (900.0, 1))
    )
    whole = Measurement("gemm", {"rows": 2}, (6.0,), at_s=900.0)
    found = {e.task.key: e for e in steadied([*turns, task, whole])}
    assert found[task.task.key].samples_s == pytest.approx((3.0, 3.0, 3.0))
    assert found[whole.task.key].samples_s == pytest.approx((3.0,))
    assert found[turns[-1].task.key].samples_s == (2.0,)
    assert steadied([task]) == (task,)


def test_runs_of_one_batch_cannot_tell_the_step_from_the_sequence() -> None:
    """host.step_s and host.sequence_s move together at batch 1: said so, not guessed."""
    alone = [e for e in simulated(0, outliers=0.0) if e.kind != "decode" or e.facts["batch"] == 1]
    found = fitted(alone)
    statuses = {
        name: found.profile.parameters[name].note for name in ("host.step_s", "host.sequence_s")
    }
    assert "not identifiable" in statuses.values() or any(
        "hard to tell apart" in warning for warning in found.warnings
    )
    assert any("host" in warning for warning in found.warnings)


def test_kernels_that_never_compute_bound_leave_the_rate_open() -> None:
    measured = [
        entry
        for entry in simulated(0, outliers=0.0)
        if entry.kind != "gemm" or entry.facts["rows"] == 1
    ]
    found = fit_kernels(DEVICE, "torch", measured, "simulation")
    parameter = found.profile.parameters["gemm.compute_efficiency.bf16"]
    assert parameter.standard_error is None
    assert parameter.note == NEVER_THE_BOUND


def test_held_out_errors_are_those_of_the_noise() -> None:
    """A model that is true errs by the noise: 4 % noise has a median of 0.6745 x 4 %."""
    measured = simulated(5, quick=False, outliers=0.0)
    kernels = fit_kernels(DEVICE, "torch", measured, "simulation")
    judged = validate(kernels, decode_runs(measured, "small"), fitter)
    assert [entry.scheme for entry in judged] == [
        "held-out models",
        "leave-one-model-out",
        "leave-one-context-out",
    ]
    for entry in judged:
        summary = entry.summary()
        assert summary.runs >= 60
        assert summary.median_ape == pytest.approx(0.027, abs=0.01)
        assert summary.coverage == pytest.approx(COVERAGE, abs=0.1)
    found = band(judged)
    assert found is not None
    assert found.low == pytest.approx(-1.2816 * 0.04, abs=0.02)
    assert found.high == pytest.approx(1.2816 * 0.04, abs=0.02)


def test_a_held_out_shape_never_reaches_the_fit() -> None:
    """Tripling its times changes how it is judged, and no parameter."""
    measured = simulated(6)
    runs = decode_runs(measured, "small")
    slow = [replace(e, measured_s=3 * e.measured_s) if e.held_out else e for e in runs]
    kernels = fit_kernels(DEVICE, "torch", measured, "simulation")
    before, after = (validate(kernels, entries, fitter)[0] for entries in (runs, slow))
    assert np.allclose(after.all - before.all, np.log(3.0))


def test_interval_covers_what_it_says_on_fresh_draws() -> None:
    random = np.random.default_rng(0)
    held = []
    for _ in range(400):
        low, high = interval(random.standard_t(4, 60))
        held.append(low <= random.standard_t(4) <= high)
    assert np.mean(held) == pytest.approx(COVERAGE, abs=0.06)


def test_coverage_needs_three_groups() -> None:
    assert coverage([np.zeros(3), np.ones(3)]) is None


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_latency_and_bandwidth_of_a_link_are_recovered(kind: str) -> None:
    """40 us and 3 GB/s a direction between two ranks, 4 % noise. A sum moves 2 (n - 1) / n = 1."""
    random = np.random.default_rng(2)
    share = 1.0 if kind == "all_reduce" else 0.5
    measured = [
        Measurement(
            kind,
            {"bytes": size, "ranks": 2, "dtype": "bf16"},
            ((40e-6 + share * size / 3e9) * float(np.exp(random.normal(0, 0.04))),),
        )
        for size in 4096 * 2 ** np.arange(0, 15)
    ]
    bare = fit_kernels(DEVICE, "torch", [], "simulation")
    found = fit_links(bare, measured, "simulation").profile
    name = "all_reduce.2" if kind == "all_reduce" else "logits_gather.2"
    latency = found.parameters[f"collective.latency_s.{name}"]
    assert latency.standard_error is not None
    assert abs(latency.value - 40e-6) < 3 * latency.standard_error < 10e-6
    assert found.roofs[f"collective_bytes_per_s.{name}"] == pytest.approx(3e9, rel=0.08)


def test_residuals_of_a_true_model_are_the_noise() -> None:
    """4 % noise on every task: a spread of 4 % around nothing, for kernels of every kind."""
    measured = simulated(3, quick=False, outliers=0.0)
    found = kernel_residuals(fitted(measured).profile, DEVICE, measured)
    assert {each.kind for each in found} == {
        "gemm", "attention", "experts", "norm", "activation", "sampler",
    }  # fmt: skip
    ratios = np.array([each.log_ratio for each in found])
    assert np.median(ratios) == pytest.approx(0.0, abs=0.01)
    assert np.std(ratios) == pytest.approx(0.04, abs=0.01)
