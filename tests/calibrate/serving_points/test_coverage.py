"""Intervals judged on groups they know nothing of."""

import numpy as np
import pytest

from roofcast.calibrate.serving_points.bands import independent, measured_band
from roofcast.calibrate.serving_points.coverage import intervals


def drawn(seed: int = 1):
    """Errors of ten groups of 200 on each of two devices, one three times as uncertain."""
    rng = np.random.default_rng(seed)
    devices = np.repeat(["calm", "wild"], 2000)
    groups = np.repeat([f"g{i}" for i in range(20)], 200)
    return rng.normal(0.0, np.where(devices == "calm", 0.1, 0.3)), devices, groups


ALL = np.ones(4000, dtype=bool)


def test_intervals_hold_four_fifths_on_every_device():
    ratios, devices, groups = drawn()
    low, high = intervals(ratios, devices, groups, ALL)
    held = (ratios >= low) & (ratios <= high)
    for device in ("calm", "wild"):
        assert held[devices == device].mean() == pytest.approx(0.8, abs=0.02)
    # the middle 80 % of a normal distribution: 1.2816 standard deviations either way
    assert high[devices == "wild"].mean() == pytest.approx(0.3 * 1.2816, rel=0.1)


def test_a_group_is_judged_by_others():
    """A group far off does not widen its own interval, so none of it is held."""
    ratios, devices, groups = drawn()
    ratios[groups == "g3"] += 5.0
    low, high = intervals(ratios, devices, groups, ALL)
    own = groups == "g3"
    assert not ((ratios >= low) & (ratios <= high))[own].any()


def test_a_device_with_few_rows_takes_the_interval_of_all():
    ratios, devices, groups = drawn()
    devices = devices.copy()
    devices[-10:] = "rare"
    groups = groups.copy()
    groups[-10:] = "own"
    low, high = intervals(ratios, devices, groups, ALL)
    others = np.sort(ratios[:-10])
    held = 0.8 * (1.0 + 1.0 / independent(ratios[:-10], list(groups[:-10])))
    inside = ((others >= low[-1]) & (others <= high[-1])).sum()
    assert inside == np.ceil(3989 * (0.5 + held / 2.0)) - np.floor(3989 * (0.5 - held / 2.0)) + 1
    assert low[-1] in others
    assert high[-1] in others


def test_rows_that_do_not_count_are_judged_but_give_no_interval():
    """Points beyond what physics allows are the table's errors, not the forecast's."""
    ratios, devices, groups = drawn()
    counted = np.arange(4000) % 10 != 0
    plain = intervals(np.where(counted, ratios, np.nan), devices, groups, ALL)
    spoilt = intervals(np.where(counted, ratios, ratios - 5.0), devices, groups, counted)
    assert np.array_equal(spoilt[0], plain[0])
    assert np.array_equal(spoilt[1], plain[1])


def test_rows_count_as_often_as_they_are_independent():
    """Without a difference between groups all count; where rows repeat their group's, groups do."""
    rng = np.random.default_rng(3)
    groups = list(np.repeat([f"g{i}" for i in range(20)], 50))
    apart = rng.normal(size=1000)
    assert independent(apart, groups) > 300
    alike = np.repeat(rng.normal(size=20), 50)
    assert independent(alike, groups) == pytest.approx(20.0, rel=0.01)


def test_an_interval_made_of_few_groups_is_wider():
    ratios = np.repeat([-0.2, -0.1, 0.1, 0.2], 25) + np.linspace(-0.01, 0.01, 100)
    alike, apart = list(np.repeat(["a", "b", "c", "d"], 25)), [str(i) for i in range(100)]
    assert measured_band(ratios, alike, "").high > measured_band(ratios, apart, "").high
