"""Closed loops and static batches against hand-worked steady states and invariants."""

from dataclasses import replace

import numpy as np
import pytest

from roofcast.simulator.serving import (
    Costs,
    Curve,
    Load,
    Scheduler,
    closed_loop,
    static_batch,
)

BATCHES = np.array([1.0, 2.0, 64.0, 128.0])


def a(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def load(
    concurrency: float, prompt: float = 1000, output: float = 500, spread: float = 1.0
) -> Load:
    return Load(a(concurrency), a(prompt), a(output), a(spread))


def costs(step: float = 0.01, each: float = 0.0, prompt: float = 0.05, most: float = 1e9) -> Costs:
    steps = (step + each * BATCHES)[np.newaxis, :]
    zero = Curve(BATCHES, np.zeros((1, BATCHES.size)))
    nothing = a(0.0)
    return Costs(Curve(BATCHES, steps), zero, a(prompt), nothing, nothing, nothing, a(most))


def scheduler(
    first: bool = False, budget: float = 8192, poll: float = 1, wait: float = 0
) -> Scheduler:
    return Scheduler(np.array([first]), a(budget), a(poll), a(wait))


def test_one_request_in_flight_waits_for_no_other():
    found = closed_loop(load(1), costs(), scheduler())
    assert found.tpot_s[0] == pytest.approx(0.01)
    # half a step until the queue is looked at, its prompt, and the step it rides in
    assert found.ttft_s[0] == pytest.approx(0.005 + 0.05 + 0.01)


def test_a_steady_loop_solves_its_two_equations():
    """T = D + B (C - 1) / C x P / O and B = C O T / (O T + F), with P shared by a = B / O arrivals."""
    given, made, how = load(64, spread=0.8), costs(each=1e-4), scheduler()
    found = closed_loop(given, made, how)
    batch, token, first = found.batch[0], found.tpot_s[0], found.ttft_s[0]
    assert batch == pytest.approx(64 * 500 * token / (500 * token + first), rel=1e-6)
    assert token == pytest.approx(0.01 + 1e-4 * batch + batch * 63 / 64 * 0.05 / 500, rel=1e-6)


def test_equal_requests_run_in_lockstep_where_prompts_go_first():
    """All 33 prompts are read before decode: half of those not read in one's own pass delay it."""
    found = closed_loop(load(33), costs(), scheduler(first=True, budget=1000))
    assert found.batch[0] == 33
    assert found.tpot_s[0] == pytest.approx(0.01 + (33 - 1) / 2 * 0.05 / 500)


def test_memory_caps_the_batch_and_lengthens_the_wait():
    free = closed_loop(load(64), costs(), scheduler())
    capped = closed_loop(load(64), costs(most=16), scheduler())
    assert capped.saturated[0]
    assert not free.saturated[0]
    assert capped.batch[0] == pytest.approx(16)
    # Little's law: 64 in flight, 16 of them decoding for 500 T, the others waiting
    assert capped.ttft_s[0] == pytest.approx((64 - 16) / 16 * 500 * capped.tpot_s[0])


@pytest.mark.parametrize("concurrency", [1, 2, 7, 64, 500])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("spread", [0.8, 1.0])
def test_no_more_decode_than_are_in_flight(concurrency, first, spread):
    found = closed_loop(load(concurrency, spread=spread), costs(each=1e-4), scheduler(first))
    assert 0 < found.batch[0] <= concurrency
    assert found.tpot_s[0] >= 0.01
    assert found.ttft_s[0] >= 0.05


def test_time_between_tokens_never_falls_as_concurrency_grows():
    flights = a(1, 2, 4, 8, 16, 32, 64, 128)
    size = flights.size
    given = Load(flights, np.full(size, 1000.0), np.full(size, 500.0), np.full(size, 0.8))
    made = costs(each=1e-4)
    wide = replace(
        made,
        decode=Curve(BATCHES, np.repeat(made.decode.step_s, size, axis=0)),
        shared=Curve(BATCHES, np.repeat(made.shared.step_s, size, axis=0)),
    )
    found = closed_loop(given, wide, scheduler())
    assert np.all(np.diff(found.tpot_s) > 0)
    assert np.all(np.diff(found.ttft_s) > 0)


def test_prompts_in_one_pass_share_what_a_pass_costs():
    """With looks at the queue far apart, several prompts fall into one pass."""
    each = replace(costs(), pass_s=a(0.1))
    often = closed_loop(load(64, spread=0.8), each, scheduler())
    seldom = closed_loop(load(64, spread=0.8), each, scheduler(poll=30))
    assert seldom.tpot_s[0] < often.tpot_s[0]
    assert seldom.ttft_s[0] > often.ttft_s[0]


def test_a_pass_with_decode_does_not_read_the_weights_twice():
    apart, made = costs(), costs()
    spared = replace(made, pass_s=a(0.02), shared=Curve(BATCHES, np.full((1, BATCHES.size), 0.008)))
    whole = replace(apart, pass_s=a(0.012))
    one = closed_loop(load(32, spread=0.8), spared, scheduler()).tpot_s
    other = closed_loop(load(32, spread=0.8), whole, scheduler()).tpot_s
    # F differs by what the request's own pass takes, hence only nearly equal
    assert one == pytest.approx(other, rel=1e-2)


def test_prompts_in_one_pass_wait_for_weights_once():
    """A prompt of 50 ms waits 80 ms for weights; two wait 30 ms beyond their work, three not at all."""
    made = replace(costs(prompt=0.05), weights_s=a(0.08))
    assert made.pass_time_s(a(1.0))[0] == pytest.approx(0.13)
    assert made.pass_time_s(a(2.0))[0] == pytest.approx(0.13)
    assert made.pass_time_s(a(3.0))[0] == pytest.approx(0.15)


def test_equal_prompts_read_in_one_pass_end_together():
    """Four prompts of 250 tokens fill a pass of 1000: each has its first token when all four have."""
    how = scheduler(first=True, budget=1000)
    found = closed_loop(load(4, prompt=250), costs(), how)
    assert found.ttft_s[0] >= 4 * 0.05


def test_a_static_batch_too_large_for_memory_runs_in_turns():
    run = static_batch(a(8), a(101), a(0.01), a(0.5), a(4))
    assert run.e2e_s[0] == pytest.approx(2 * (0.5 + 100 * 0.01))
