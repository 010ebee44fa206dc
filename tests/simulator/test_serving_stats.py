"""Sums of a served trace, worked by hand on steps of 10 ms."""

import numpy as np
import pytest

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator.requests import requests
from roofcast.simulator.serving_stats import Objectives, over_time, summary
from roofcast.simulator.simulation import simulation
from tests.simulator.machines import flat_setup
from tests.simulator.test_batching import constant_steps, run

STEP_S = 0.01


def test_rates_and_latencies_by_hand() -> None:
    served = run(requests([0.0, 0.0], [10, 10], [5, 11]))
    found = summary(served)
    # both first tokens after one step; the last of the second after ten more
    assert found.duration_s == pytest.approx(11 * STEP_S)
    assert found.output_tokens_per_s == pytest.approx(16 / (11 * STEP_S))
    assert found.total_tokens_per_s == pytest.approx(36 / (11 * STEP_S))
    assert found.ttft_s.mean == pytest.approx(STEP_S)
    assert found.tpot_s.quantiles["p50"] == pytest.approx(STEP_S)
    assert found.itl_s.largest == pytest.approx(STEP_S)
    assert found.running == pytest.approx((5 * 2 + 6 * 1) / 11)
    assert (found.steps, found.busy) == (11, pytest.approx(1.0))


def test_goodput_counts_requests_that_keep_every_objective() -> None:
    served = run(requests(np.zeros(4), 10, 5), max_sequences=2)  # TTFT 10, 10, 60, 60 ms
    assert Objectives(ttft_s=0.03).met(served).tolist() == [True, True, False, False]
    assert Objectives(ttft_s=0.03, tpot_s=0.005).met(served).sum() == 0
    assert summary(served, Objectives(ttft_s=0.03)).good_share == 0.5
    assert summary(served, Objectives(ttft_s=0.03)).good_requests_per_s == pytest.approx(2 / 0.1)
    assert summary(served).good_share == 1.0


def test_a_reply_of_one_token_has_no_tpot_to_miss() -> None:
    served = run(requests([0.0], 10, 1))
    assert Objectives(tpot_s=1e-6).met(served).all()
    assert np.isnan(summary(served).tpot_s.mean)
    assert np.isnan(summary(served).itl_s.mean)


def test_prompts_read_between_two_tokens_count() -> None:
    served = run(requests([0.0, 0.015], [10, 195], [10, 1]), prompts_first=True)
    itl = summary(served).itl_s
    assert itl.largest == pytest.approx(3 * STEP_S)  # two chunks, then the next token
    assert itl.mean == pytest.approx(summary(served).tpot_s.mean)


def test_windows_hold_every_token() -> None:
    rng = np.random.default_rng(3)
    trace = requests(
        np.sort(rng.uniform(0, 3, 60)), rng.integers(1, 150, 60), rng.integers(1, 40, 60)
    )
    served = run(trace)
    windows = over_time(served, 25)
    assert (windows.output_tokens_per_s * windows.width_s).sum() == trace.output_tokens.sum()
    assert (windows.prompt_tokens_per_s * windows.width_s).sum() == trace.input_tokens.sum()
    assert windows.kv_use.max() <= 1


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (
            {"ttft_s": 0.001},
            "a TTFT of 1 ms is out of reach: the shortest prompt .10 new tokens., alone",
        ),
        (
            {"tpot_s": 0.002},
            "a TPOT of 2 ms is out of reach: one sequence of 10 tokens, alone, takes 10",
        ),
    ],
)
def test_impossible_objectives_say_what_is_reachable(goal: dict[str, float], words: str) -> None:
    trace = requests([0.0, 0.0], [10, 20], 5)
    with pytest.raises(InputError, match=words):
        Objectives(**goal).check(trace, run(trace).policy, constant_steps())


def test_objectives_are_positive() -> None:
    for value in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="must be positive"):
            Objectives(ttft_s=value)


def test_a_deployment_takes_its_limits_from_engine_and_memory() -> None:
    trace = requests([0.0], 100, 50)
    ready = simulation(flat_setup(1e-3), trace)
    # 80 GB: less than its capacity over 1,024 bytes a token (2 layers x 2 x 2 heads x 64 x 2 bytes)
    assert 0.8 * 80e9 / 1024 < ready.policy.kv_tokens < 80e9 / 1024
    assert ready.policy.token_budget == 8192
    assert ready.run(trace).last_token_s[0] == pytest.approx(50 * 1e-3, rel=0.2)


def test_what_can_never_be_served() -> None:
    with pytest.raises(
        CapacityError, match="request 1 of 600 tokens can never fit in a cache of 512"
    ):
        simulation(flat_setup(), requests([0.0, 0.0], [10, 500], [10, 100]), kv_tokens=512)
    with pytest.raises(InputError, match="beyond the 4096 that toy allows"):
        simulation(flat_setup(), requests([0.0], 4000, 200))
