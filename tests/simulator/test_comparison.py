"""Comparisons: fronts, crossings and tensor curves against brute force and hand-worked cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.hardware.profile import Profile
from roofcast.simulator import Parallelism, setup
from roofcast.simulator.capacity import LIMIT, SETTING, batch_capacity, context_capacity
from roofcast.simulator.comparison import (
    batches_up_to,
    contender,
    overtaking,
    pareto,
    tensor_curve,
    tensor_sizes,
    tradeoff,
)
from roofcast.simulator.memory_policy import Launch
from roofcast.simulator.planning.prices import Power, Price

LLAMA = setup("llama-3.1-8b", "h100-sxm", profile="ideal")
LARGE = setup("llama-3.1-70b", "h100-sxm", profile="ideal")
points = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=40)


@settings(deadline=None)
@given(points)
def test_a_front_is_what_nothing_beats(pairs: list[tuple[int, int]]) -> None:
    one, other = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
    front = pareto(one, other)
    assert np.all(np.diff(one[front]) < 0)
    assert np.all(np.diff(other[front]) > 0)
    for a, b in pairs:
        beaten = np.any((one[front] >= a) & (other[front] >= b))
        assert beaten, "every point is on the front or behind a point of it"


def test_where_curves_cross() -> None:
    x = np.array([1.0, 10, 100, 1000])
    found = overtaking(("slow start", "steady"), x, x, np.full(4, 31.6))
    assert (found.leader, found.follower) == ("steady", "slow start")
    assert found.at == pytest.approx([31.6], rel=1e-2)  # exact between decades of a power law
    apart = overtaking(("a", "b"), x, 2 * x, x)
    assert (apart.leader, apart.at) == ("a", ())


def test_a_front_runs_from_many_ranks_and_few_users_to_the_reverse() -> None:
    front = tradeoff(LARGE, 4096, [4, 8])
    assert (front.tensor[0], front.batch[0]) == (8, 1)
    assert np.all(np.diff(front.per_user) < 0)
    assert np.all(np.diff(front.per_device) > 0)
    for index in (0, len(front.batch) // 2, len(front.batch) - 1):
        where = replace(LARGE, parallelism=Parallelism(int(front.tensor[index])))
        step = where.decode(int(front.batch[index]), 4096)
        assert float(step.tokens_per_s_per_device) == pytest.approx(front.per_device[index])
        assert bool(step.memory.fits)


def test_sizes_are_those_engines_accept_within_a_node() -> None:
    assert tensor_sizes(LLAMA) == [1, 2, 4, 8]
    assert tensor_sizes(setup("qwen2.5-0.5b", "h100-sxm", profile="ideal")) == [1, 2]  # 14 heads
    with pytest.raises(CapacityError, match="does not fit on one node of rtx-4090"):
        contender(setup("llama-3.1-405b", "rtx-4090", profile="ideal"), 4096, None, None)


def test_the_smallest_layout_that_holds_a_sequence_is_compared() -> None:
    assert contender(LLAMA, 4096, None, None).devices == 1
    assert contender(LARGE, 4096, None, None).devices == 4


def test_costs_are_those_of_pure_decode() -> None:
    who = contender(LLAMA, 4096, Price(3.6), None)
    step = who.where.decode(64, 4096)
    # 3.6 USD an hour is a thousandth of a USD a second
    cost = who.usd_per_million_tokens(step, Power())
    assert cost is not None
    assert float(cost) == pytest.approx(1e-3 / float(step.tokens_per_s) * 1e6)
    energy = who.joules_per_token(step, Power(draw=1.0))
    assert energy is not None
    assert float(energy) == pytest.approx(700 / float(step.tokens_per_s))


def test_tensor_curve_for_one_user_and_for_many() -> None:
    curve = tensor_curve(LARGE, 4096, [1, 2, 4, 8])
    assert curve.ranks.tolist() == [4, 8]  # two H100 do not hold 141 GB
    assert curve.best_for_one_user == 8
    assert 1 < curve.speedup[1] < 2
    assert curve.saturated_batch[1] > 2 * curve.saturated_batch[0]  # memory grows more than twofold
    assert np.all((curve.single_links >= 0) & (curve.single_links < 1))


def test_tensor_curve_of_a_small_model_over_pcie_falls() -> None:
    plain = Profile("plain", "rtx-4090", "vllm", "nothing measured")
    where = setup("smollm2-360m", "rtx-4090", profile=plain)
    curve = tensor_curve(where, 1000, [1, 2])
    assert curve.best_for_one_user == 1
    assert curve.speedup[1] < 1
    assert curve.single_links[1] > 0.3


def test_a_model_that_fits_on_no_size() -> None:
    with pytest.raises(InputError, match="fits on none of TP 1, TP 2 of h100"):
        tensor_curve(LARGE, 4096, [1, 2])


def test_batches_end_at_the_limit() -> None:
    assert batches_up_to(100)[-1] == 100
    assert batches_up_to(1).tolist() == [1]
    assert np.all(np.diff(batches_up_to(5000)) > 0)


# What fits, and what binds


def test_what_binds_the_largest_batch_and_the_longest_context() -> None:
    most = batch_capacity(LLAMA, 8192)
    assert most.binds == "KV cache"
    assert bool(LLAMA.decode(most.most, 8192).memory.fits)
    assert not bool(LLAMA.decode(most.most + 1, 8192).memory.fits)
    longest = context_capacity(LLAMA, 1)
    assert (longest.most, longest.binds) == (131_071, LIMIT)
    assert context_capacity(LLAMA, 40).binds == "KV cache"
    capped = replace(LLAMA, launch=Launch(max_sequences=8))
    assert batch_capacity(capped, 1024) == type(most)(8, SETTING)
    full = setup("llama-3.1-70b", "h100-sxm", profile="ideal")
    assert batch_capacity(full, 128).binds == "weights, sharded"
