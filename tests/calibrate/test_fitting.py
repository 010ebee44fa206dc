"""The fit against parameters it was simulated from, and against what cannot be known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from roofcast.calibrate.fitting import Errors, Fit, Sample, Unknown, fit

FIXED = Unknown("fixed_s", 1e-5, 1e-7, 1e-3)
REACH = Unknown("reach", 0.7, 0.05, 1.0)
BYTES = np.geomspace(1e4, 1e9, 400)


def seconds(values: Mapping[str, float]) -> np.ndarray:
    return values["fixed_s"] + BYTES / (values["reach"] * 3e12)


def simulated(seed: int, outliers: int) -> Fit:
    random = np.random.default_rng(seed)
    measured = seconds({"fixed_s": 4e-6, "reach": 0.83}) * np.exp(random.normal(0, 0.05, 400))
    measured[random.choice(400, outliers, replace=False)] *= 5
    return fit(seconds, [FIXED, REACH], Sample(measured))


@pytest.mark.parametrize("outliers", [0, 20])
def test_recovers_what_it_was_simulated_from(outliers: int) -> None:
    """Five per cent of rows five times too slow must not move it beyond three standard errors."""
    for seed in range(5):
        found = simulated(seed, outliers)
        for name, truth in (("fixed_s", 4e-6), ("reach", 0.83)):
            estimate = found[name]
            assert estimate.status == "ok"
            assert estimate.standard_error is not None
            assert abs(estimate.value - truth) < 3 * estimate.standard_error
            assert estimate.standard_error < 0.02 * truth


def test_standard_error_is_the_scatter_of_repeated_fits() -> None:
    fits = [simulated(seed, 0) for seed in range(40)]
    scatter = np.std([found["reach"].value for found in fits], ddof=1)
    stated = np.mean([found["reach"].standard_error or 0 for found in fits])
    assert stated == pytest.approx(scatter, rel=0.35)  # a scatter of 40 is known to 11 %


def test_clusters_widen_the_error_of_rows_that_err_together() -> None:
    """400 rows in 20 sweeps that share their noise know as much as 20 rows."""
    random = np.random.default_rng(3)
    sweep = np.repeat(np.arange(20), 20)
    noise = random.normal(0, 0.1, 20)[sweep]
    measured = seconds({"fixed_s": 4e-6, "reach": 0.6}) * np.exp(noise)
    alone = fit(seconds, [FIXED, REACH], Sample(measured))["reach"].standard_error
    together = fit(seconds, [FIXED, REACH], Sample(measured, clusters=sweep))[
        "reach"
    ].standard_error
    assert alone is not None
    assert together is not None
    assert together > 2 * alone


def test_two_parameters_that_only_act_as_a_product_are_not_identifiable() -> None:
    def product(values: Mapping[str, float]) -> np.ndarray:
        return values["fixed_s"] + BYTES / (values["reach"] * values["share"] * 3e12)

    measured = seconds({"fixed_s": 4e-6, "reach": 0.5})
    found = fit(product, [FIXED, REACH, Unknown("share", 0.8, 0.1, 1.0)], Sample(measured))
    assert {found["reach"].status, found["share"].status} == {"not identifiable"}
    assert found["reach"].standard_error is None
    assert found["fixed_s"].value == pytest.approx(4e-6, rel=1e-3)
    assert found["fixed_s"].standard_error is not None


def test_a_parameter_nothing_depends_on_is_not_identifiable() -> None:
    measured = seconds({"fixed_s": 4e-6, "reach": 0.5})
    idle = fit(seconds, [FIXED, REACH, Unknown("idle", 1.0, 0.1, 10.0)], Sample(measured))["idle"]
    assert idle.status == "not identifiable"
    assert idle.standard_error is None


def test_a_bound_that_holds_is_reported() -> None:
    measured = seconds({"fixed_s": 4e-6, "reach": 1.3})
    reach = fit(seconds, [FIXED, REACH], Sample(measured))["reach"]
    assert reach.status == "at upper bound"
    assert reach.value == pytest.approx(1.0, rel=1e-2)


def test_a_prior_decides_what_data_does_not() -> None:
    measured = seconds({"fixed_s": 4e-6, "reach": 0.5})
    held = Unknown("idle", 2.0, 0.1, 10.0, prior_sd=0.1)
    found = fit(seconds, [FIXED, REACH, held], Sample(measured))["idle"]
    assert found.value == pytest.approx(2.0)
    assert found.standard_error == pytest.approx(0.2)


def test_fixed_time_and_efficiency_are_positively_correlated() -> None:
    """More fixed time leaves less for the bytes, which must then be faster."""
    found = simulated(0, 0)
    assert 0 < found.correlations[0, 1] < 1
    assert np.diag(found.correlations) == pytest.approx([1, 1])


def test_a_linear_parameter_may_be_zero_or_negative() -> None:
    x = np.linspace(1, 2, 50)
    found = fit(
        lambda v: 2 + v["slope"] * x, [Unknown("slope", 0.1, -1.0, 1.0)], Sample(2 - 0.25 * x)
    )
    assert found["slope"].value == pytest.approx(-0.25, rel=1e-5)


def test_errors_are_relative_to_the_measured_value() -> None:
    """Forecasts of 90, 100 and 120 for measured 100: errors -10 %, 0, +20 %."""
    errors = Errors.of(np.log(100 / np.array([90, 100, 120])))
    assert errors.rows == 3
    assert errors.median_ape == pytest.approx(0.1)
    assert errors.p90_ape == pytest.approx(0.18)
    assert errors.signed_median == pytest.approx(0.0)


@pytest.mark.parametrize("measured", [[], [1.0, 0.0]])
def test_nothing_to_fit_is_refused(measured: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Sample(measured)
