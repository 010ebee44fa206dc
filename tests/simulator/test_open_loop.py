"""The steady state of random arrivals against the event-driven scheduler and queueing theory."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from roofcast.simulator import Parallelism, setup
from roofcast.simulator.api import Setup
from roofcast.simulator.batching import Served, serve
from roofcast.simulator.open_loop import Demand, ServiceCosts, State, stacked, steady
from roofcast.simulator.planning.costing import BATCHES, CostTable, Lengths
from roofcast.simulator.requests import requests
from roofcast.simulator.scheduler import Policy
from roofcast.simulator.serving import Curve
from roofcast.simulator.step_time import tabulate

BUDGET = 8192


@dataclass(frozen=True)
class Case:
    where: Setup
    prompt: int
    reply: int
    rate_per_s: float


def point(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def service_costs(where: Setup, prompt: int, reply: int, budget: int = BUDGET) -> ServiceCosts:
    steps = CostTable(Lengths(prompt + reply / 2, prompt)).of(where, budget, riding=True)
    return ServiceCosts(
        decode=Curve(BATCHES, steps.decode_s[None]),
        first=Curve(BATCHES, steps.first_s[None]),
        further_s=point(steps.further_s),
        pass_tokens=point(budget),
        request_s=point(0),
        riding=np.array([True]),
        ahead=point(1),
        tokens_per_step=point(1),
        stages=point(1),
        alone_s=point(steps.prompt_alone_s),
    )


def analytic(case: Case, quantile: float) -> State:
    costs = service_costs(case.where, case.prompt, case.reply)
    demand = Demand(point(case.prompt), point(0), point(case.reply))
    low, high = 0.0, 2000.0
    for _ in range(50):
        middle = (low + high) / 2
        less = steady(point(middle), demand, costs, quantile).rate_per_s[0] < case.rate_per_s
        low, high = (middle, high) if less else (low, middle)
    return steady(point(high), demand, costs, quantile)


def simulated(case: Case, count: int = 2500) -> tuple[Served, slice]:
    rng = np.random.default_rng(7)
    arrivals = np.cumsum(rng.exponential(1 / case.rate_per_s, count))
    times = tabulate(case.where, BUDGET, 1024, case.prompt + case.reply + 10)
    policy = Policy(kv_tokens=4_000_000, token_budget=BUDGET, max_sequences=1024)
    served = serve(requests(arrivals, case.prompt, case.reply), times, policy)
    return served, slice(count // 5, 4 * count // 5)


LLAMA_8B = setup("llama-3.1-8b", "h100-sxm", profile="ideal")
CASES = {
    "light": Case(LLAMA_8B, 1000, 200, 5),
    "busy": Case(LLAMA_8B, 1000, 200, 20),
    "long prompts": Case(LLAMA_8B, 3000, 100, 6),
    "two ranks": Case(
        setup("llama-3.1-70b", "h200-sxm", profile="ideal", parallelism=Parallelism(2)),
        2000,
        300,
        2,
    ),
    "experts": Case(setup("qwen3-30b-a3b", "h100-sxm", profile="ideal"), 1000, 200, 10),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_event_driven_scheduler(name: str) -> None:
    """Means within 6 % for TPOT and 10 % for TTFT, the 95th percentiles within 12 and 20 %."""
    case = CASES[name]
    ours = analytic(case, 0.95)
    served, middle = simulated(case)
    tpot, ttft = served.tpot_s[middle], served.ttft_s[middle]
    assert float(ours.tpot_s[0]) == pytest.approx(np.mean(tpot), rel=0.06)
    assert float(ours.ttft_s[0]) == pytest.approx(np.mean(ttft), rel=0.10)
    assert float(ours.tpot_quantile_s[0]) == pytest.approx(np.quantile(tpot, 0.95), rel=0.12)
    assert float(ours.ttft_quantile_s[0]) == pytest.approx(np.quantile(ttft, 0.95), rel=0.20)


def flat(decode_s: float, per_sequence_s: float = 0.0) -> ServiceCosts:
    """Steps of decode_s + per_sequence_s a sequence, prompts that cost nothing."""
    steps = decode_s + per_sequence_s * BATCHES
    still = Curve(BATCHES, np.zeros((1, BATCHES.size)))
    return ServiceCosts(
        decode=Curve(BATCHES, steps[None]),
        first=still,
        further_s=point(0),
        pass_tokens=point(8192),
        request_s=point(0),
        riding=np.array([True]),
        ahead=point(1),
        tokens_per_step=point(1),
        stages=point(1),
        alone_s=point(0),
    )


DEMAND = Demand(point(1000), point(0), point(201))


def test_littles_law_holds() -> None:
    """In flight = rate x time in the system, whatever the batch."""
    state = steady(point(40), DEMAND, service_costs(LLAMA_8B, 1000, 201), 0.95)
    life = state.ttft_s + 200 * state.tpot_s
    assert float(state.in_flight[0]) == pytest.approx(float(state.rate_per_s[0] * life[0]))


def test_steps_that_never_grow_serve_like_infinitely_many_servers() -> None:
    """M/G/infinity: the batch is Poisson, deviation sqrt(B); TPOT is the step."""
    state = steady(point(100), DEMAND, flat(0.01), 0.975)
    assert float(state.tpot_s[0]) == pytest.approx(0.01)
    # the 97.5th percentile of a Poisson number of mean 100 is 120
    assert float(state.peak_batch[0]) == pytest.approx(120, abs=0.2)


def test_steps_that_grow_make_the_batch_vary_more() -> None:
    """Steps of c (j + 1), half of it fixed at B = 100: variance B / (1 - e), e near 1/2."""
    state = steady(point(100), DEMAND, flat(0.1, 0.001), 0.975)
    assert float(state.peak_batch[0]) == pytest.approx(100 + 1.96 * np.sqrt(200) + 0.47, rel=0.01)


def test_more_traffic_is_never_faster() -> None:
    costs = service_costs(LLAMA_8B, 1000, 201)
    states = stacked(np.geomspace(0.1, 1000, 60)[:, None], DEMAND, costs, 0.95)
    for name in ("rate_per_s", "tpot_s", "tpot_quantile_s", "ttft_quantile_s", "prompt_load"):
        assert np.all(np.diff(getattr(states, name)[:, 0]) >= -1e-12), name


def test_accepting_two_tokens_a_step_halves_the_time_a_token_takes() -> None:
    plain = steady(point(10), DEMAND, flat(0.02), 0.95)
    drafted = steady(point(10), DEMAND, replace(flat(0.02), tokens_per_step=point(2)), 0.95)
    assert float(drafted.tpot_s[0]) == float(plain.tpot_s[0]) / 2
    assert float(drafted.rate_per_s[0]) == 2 * float(plain.rate_per_s[0])
    assert float(drafted.ttft_s[0]) == pytest.approx(float(plain.ttft_s[0]), rel=1e-3)


def test_prompts_beyond_the_budget_queue_without_end() -> None:
    """20,000 prompt tokens a second need more passes of 8,192 than there is time for."""
    costs = service_costs(setup("llama-3.1-70b", "h200-sxm", profile="ideal"), 8000, 20)
    demand = Demand(point(8000), point(0), point(20))
    states = stacked(np.geomspace(0.05, 200, 60)[:, None], demand, costs, 0.95)
    assert float(states.prompt_load[-1, 0]) < 1.2
    assert float(states.ttft_quantile_s[-1, 0]) > 10 * float(states.ttft_quantile_s[0, 0])
