"""Statistics of raw samples against hand-worked and published values."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calibrate.samples import Measurement, Task, median, median_interval, quantile, spread

TIMES = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60)


@given(TIMES)
def test_median_is_that_of_the_standard_library(samples: list[float]) -> None:
    assert median(samples) == pytest.approx(statistics.median(samples))


@given(TIMES.filter(lambda samples: len(samples) > 1))
def test_deciles_are_those_of_the_standard_library(samples: list[float]) -> None:
    deciles = statistics.quantiles(samples, n=10, method="inclusive")
    assert quantile(samples, 0.1) == pytest.approx(deciles[0])
    assert quantile(samples, 0.9) == pytest.approx(deciles[-1])


def test_interval_of_a_median_matches_the_binomial_ranks() -> None:
    """n = 20: the exact 95.9 % interval of the sign test runs from rank 6 to rank 15."""
    assert median_interval([float(i) for i in range(1, 21)]) == (5.0, 16.0)  # normal form: wider


def test_interval_holds_the_true_median_about_95_times_in_100() -> None:
    import random

    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        low, high = median_interval([draw.lognormvariate(0.0, 0.5) for _ in range(25)])
        held += low <= 1.0 <= high
    assert 0.94 <= held / 2000 <= 0.995


def test_few_samples_have_their_extremes_for_an_interval() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert math.isnan(median_interval([])[0])


def test_spread_ignores_a_single_outlier_in_twenty() -> None:
    assert spread([1.0] * 19 + [50.0]) == 0.0


def test_equal_tasks_have_equal_keys_and_others_not() -> None:
    one = Task("gemm", {"rows": 1, "dtype": "bf16"})
    assert one.key == Task("gemm", {"rows": 1, "dtype": "bf16"}).key
    assert one.key != Task("gemm", {"rows": 2, "dtype": "bf16"}).key
    assert Measurement("gemm", one.facts, (1.0,)).task.key == one.key
