"""Continuous batching: conservation, order, limits, and agreement with steps worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator import Parallelism, setup
from roofcast.simulator.batching import Policy, Served, serve
from roofcast.simulator.requests import Requests, requests
from roofcast.simulator.step_time import StepTimes, Surface, tabulate
from tests.simulator.machines import flat_setup

STEP_S = 0.01
FLAT = Surface((1.0, 2.0), (1.0, 2.0), ((0.0, 0.0), (0.0, 0.0)))


def constant_steps(tokens: int = 5000) -> StepTimes:
    """Every step takes 10 ms, whatever is in it."""
    body = (STEP_S,) * tokens
    return StepTimes(body, body, (0.0,) * tokens, FLAT, FLAT)


def run(trace: Requests, **limits: object) -> Served:
    """Serve a trace by an engine that decides on a step when the one before it has ended."""
    policy = {
        "kv_tokens": 100_000,
        "token_budget": 100,
        "max_sequences": 8,
        "ahead": False,
        **limits,
    }
    concurrency = policy.pop("concurrency", None)
    return serve(trace, constant_steps(), Policy(**policy), concurrency)  # type: ignore[arg-type]


def test_one_request_by_hand() -> None:
    served = run(requests([0.5], 250, 4))
    # three chunks of at most 100 tokens, the last one gives the first token; three steps more
    assert served.scheduled_s[0] == 0.5
    assert served.first_token_s[0] == pytest.approx(0.5 + 3 * STEP_S)
    assert served.last_token_s[0] == pytest.approx(0.5 + 6 * STEP_S)


def test_a_prompt_shares_its_step_with_decoding_sequences() -> None:
    served = run(requests([0.0, 0.015], [10, 95], [10, 1]))
    # the second prompt finds 99 of the budget's 100 tokens left beside one decoding sequence
    assert served.first_token_s[1] == pytest.approx(3 * STEP_S)
    assert served.last_token_s[0] == pytest.approx(10 * STEP_S)


def test_unchunked_prompts_stop_the_others() -> None:
    served = run(requests([0.0, 0.015], [10, 95], [10, 1]), chunked=False)
    assert served.last_token_s[0] == pytest.approx(11 * STEP_S)


def test_prompts_first_are_read_in_chunks_while_the_others_stop() -> None:
    served = run(requests([0.0, 0.015], [10, 195], [10, 1]), prompts_first=True)
    # the first decodes once, then stops for two chunks of the second
    assert served.first_token_s[1] == pytest.approx(4 * STEP_S)
    assert served.last_token_s[0] == pytest.approx(12 * STEP_S)


def test_sequences_at_once_are_limited() -> None:
    served = run(requests(np.zeros(4), 10, 5), max_sequences=2)
    assert served.timeline.decoding.max() == 2
    assert served.first_token_s.tolist() == pytest.approx([STEP_S, STEP_S, 6 * STEP_S, 6 * STEP_S])


def test_a_full_cache_preempts_the_latest_and_loses_no_token() -> None:
    served = run(requests(np.zeros(3), 32, 40), kv_tokens=160, max_sequences=3)
    assert served.preemptions.tolist()[0] == 0
    assert served.preemptions.sum() > 0
    assert served.timeline.kv_blocks.max() <= 10
    assert np.all(served.last_token_s > served.first_token_s)


def test_a_step_is_decided_while_the_one_before_it_runs() -> None:
    served = run(requests([0.0, 0.015], [10, 95], [10, 1]), ahead=True)
    # the step from 20 to 30 ms was decided at 10 ms, before the second request came
    assert served.scheduled_s[1] == pytest.approx(2 * STEP_S)
    assert served.first_token_s[1] == pytest.approx(4 * STEP_S)


def test_deciding_ahead_frees_a_place_one_step_late() -> None:
    served = run(requests([0.0, 0.0], 10, 5), ahead=True, max_sequences=1)
    # the first is done at 50 ms; the step from 50 to 60 ms was decided at 40 ms: there is none
    assert served.first_token_s[1] == pytest.approx(6 * STEP_S)
    three = run(requests([0.0, 0.0, 0.0], 10, [5, 9, 5]), ahead=True, max_sequences=2)
    # the second still decodes: the third waits through the step from 50 to 60 ms
    assert three.first_token_s[2] == pytest.approx(7 * STEP_S)


@pytest.mark.parametrize(("keeps", "read_again"), [(True, 33), (False, 49)])
def test_a_preempted_sequence_reclaims_blocks_nobody_took(keeps: bool, read_again: int) -> None:
    served = run(requests(np.zeros(2), 32, 40), kv_tokens=96, keeps_blocks=keeps)
    # both hold 3 blocks of 16 when they reach 48 tokens. The second goes; the first takes two of its
    # blocks before it ends. One is left: of 49 tokens to read again, 16 are there.
    assert served.preemptions.tolist() == [0, 1]
    assert served.timeline.prompt_tokens.sum() == 2 * 32 + read_again
    assert served.returned.time_s[0] == pytest.approx(served.last_token_s[0])


def test_a_prompt_waits_until_all_of_it_has_room() -> None:
    trace = requests([0.0, 0.005], [64, 150], [40, 2])
    # 14 blocks, 5 to 7 of them used by the first; the second needs 10
    waits = run(trace, kv_tokens=14 * 16)
    assert waits.scheduled_s[1] == pytest.approx(waits.last_token_s[0])
    begins = run(trace, kv_tokens=14 * 16, whole_prompt_fits=False)
    assert begins.scheduled_s[1] == pytest.approx(STEP_S)


def test_a_closed_loop_keeps_its_requests_in_flight() -> None:
    served = run(requests(np.zeros(20), 10, 5), concurrency=4)
    arrivals, ends = served.requests.arrival_s, np.sort(served.last_token_s)
    assert arrivals[:4].tolist() == [0.0] * 4
    assert arrivals[4:].tolist() == pytest.approx(ends[:-4].tolist())
    assert served.duration_s == pytest.approx(5 * 5 * STEP_S)


def test_equal_priorities_keep_their_order_and_none_starves() -> None:
    rng = np.random.default_rng(7)
    priority = rng.integers(0, 3, 120)
    trace = requests(np.sort(rng.uniform(0, 1, 120)), 40, 30, priority=priority)
    served = run(trace, max_sequences=3)
    for level in range(3):
        assert np.all(np.diff(served.scheduled_s[priority == level]) >= 0)
    waited = served.scheduled_s - trace.arrival_s
    assert np.mean(waited[priority == 0]) < np.mean(waited[priority == 2])
    assert np.all(served.last_token_s > 0)


def test_priority_goes_first() -> None:
    served = run(requests(np.zeros(3), 10, 5, priority=[2, 1, 0]), max_sequences=1)
    assert np.argsort(served.first_token_s).tolist() == [2, 1, 0]


def test_a_prefix_hit_is_not_read_again() -> None:
    served = run(requests([0.0], 250, 2, cached_tokens=200))
    assert served.first_token_s[0] == pytest.approx(STEP_S)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 40),
    chunked=st.booleans(),
    blocks=st.integers(12, 60),
    at_once=st.integers(1, 12),
    switches=st.tuples(*[st.booleans()] * 4),
    users=st.none() | st.integers(1, 20),
)
def test_conservation(
    seed: int,
    count: int,
    chunked: bool,
    blocks: int,
    at_once: int,
    switches: tuple[bool, bool, bool, bool],
    users: int | None,
) -> None:
    """Every request is answered once, in full, in time order, within the cache and the limits.

    Whatever the priorities and prefix hits, at random or in a closed loop: none starves.
    """
    rng = np.random.default_rng(seed)
    prompts = rng.integers(1, 90, count)
    trace = requests(
        np.sort(rng.uniform(0, 2, count)),
        prompts,
        rng.integers(1, 60, count),
        priority=rng.integers(0, 3, count),
        cached_tokens=rng.integers(0, prompts),
    )
    ahead, whole, keeps, first = switches
    served = run(
        trace,
        chunked=chunked,
        kv_tokens=blocks * 16,
        max_sequences=at_once,
        ahead=ahead,
        whole_prompt_fits=whole,
        keeps_blocks=keeps,
        prompts_first=first,
        concurrency=users,
    )
    trace = served.requests
    assert np.all(served.scheduled_s >= trace.arrival_s)
    assert np.all(served.first_token_s > served.scheduled_s)
    assert np.all(served.last_token_s >= served.first_token_s)
    assert np.all((served.last_token_s == served.first_token_s) == (trace.output_tokens == 1))
    timeline = served.timeline
    assert np.all(timeline.end_s > timeline.begin_s)
    assert np.all(timeline.begin_s[1:] >= timeline.end_s[:-1] - 1e-9)
    assert timeline.kv_blocks.max() <= blocks
    assert timeline.decoding.max() <= at_once
    if chunked or not served.preemptions.any():  # an unchunked recomputation may outgrow the budget
        assert timeline.tokens.max() <= 100
    # tokens read and written: what of every prompt wasn't cached once, every reply's tokens but the
    # last of each, and what preemption recomputed
    read = trace.input_tokens - trace.cached_tokens
    least = int(read.sum() + (trace.output_tokens - 1).sum())
    computed = int(timeline.tokens.sum())
    assert computed >= least
    if not served.preemptions.any():
        assert computed == least
    assert len(served.preempted) == served.preemptions.sum() == len(served.returned)


def test_without_preemption_first_come_is_first_scheduled() -> None:
    rng = np.random.default_rng(1)
    trace = requests(np.sort(rng.uniform(0, 1, 50)), rng.integers(1, 300, 50), 20)
    served = run(trace)
    assert np.all(np.diff(served.scheduled_s) >= 0)


def test_a_run_is_reproducible() -> None:
    trace = requests(np.linspace(0, 1, 30), 50, 30)
    assert run(trace).last_token_s.tolist() == run(trace).last_token_s.tolist()


def test_step_times_equal_forecasts_at_the_grid() -> None:
    where = flat_setup(1e-4)
    times = tabulate(where, max_tokens=512, max_sequences=64, max_context=4000)
    for batch, context in [(1, 1), (1, 100), (8, 1000), (64, 3999)]:
        forecast = float(where.decode(batch, context).step_time_s)
        assert times(batch, context) == pytest.approx(forecast, rel=0.005)


def test_a_lone_prompt_takes_the_time_of_its_prefill() -> None:
    where = flat_setup(1e-4)
    times = tabulate(where, max_tokens=512, max_sequences=64, max_context=4000)
    prefill = float(where.prefill(1, 300).step_time_s)
    assert times(0, 0.0, [(0, 300)]) == pytest.approx(prefill, rel=0.01)


def test_over_many_ranks_a_prompt_gathers_the_logits_of_one_token() -> None:
    where = setup("llama-3.1-8b", "rtx-4090", profile="ideal", parallelism=Parallelism(4))
    times = tabulate(where, max_tokens=2048, max_sequences=64, max_context=4000)
    prefill = float(where.prefill(1, 1000).step_time_s)
    assert times(0, 0.0, [(0, 1000)]) == pytest.approx(prefill, rel=0.01)


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (([], 1, 1), "holds no request"),
        (([0.0, -1.0], 1, 1), "request 1: arrival_s must be at least 0, not -1"),
        (([1.0, 0.5], 1, 1), "request 1 arrives at 0.5 s, before the one above it"),
        (([0.0], 0, 1), "request 0: input_tokens must be a whole number of at least 1, not 0"),
        (([0.0], 1, 1.5), "request 0: output_tokens must be a whole number"),
    ],
)
def test_bad_traces_are_named(trace: tuple[object, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        requests(*trace)  # type: ignore[arg-type]


def test_a_request_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(CapacityError, match="request 0 of 300 tokens can never fit"):
        run(requests([0.0], 200, 100), kv_tokens=256)
