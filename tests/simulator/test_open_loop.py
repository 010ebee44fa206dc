"""The steady state's closed form against the event-driven scheduler, and against queueing theory.

Profiles are written by hand, so that nothing that is shipped or fitted decides.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from roofcast.hardware.profile import Parameter, Profile
from roofcast.simulator import Parallelism, setup
from roofcast.simulator.api import Setup
from roofcast.simulator.batching import Served, serve
from roofcast.simulator.engines import find_engine
from roofcast.simulator.open_loop import Replies, ServiceCosts, State, stacked, steady
from roofcast.simulator.planning.asked import Asked, Options
from roofcast.simulator.planning.candidates import Candidate
from roofcast.simulator.planning.costing import BATCHES
from roofcast.simulator.planning.service import costs_of
from roofcast.simulator.planning.traffic import Lengths, Objectives, Traffic
from roofcast.simulator.scheduler import Policy
from roofcast.simulator.serving import Curve
from roofcast.simulator.step_time import tabulate
from roofcast.simulator.traffic import Traffic as Drawn
from roofcast.simulator.traffic import lengths

BUDGET, MOST = 8192, 1024
KERNELS = {
    "gemm.bandwidth_efficiency": 0.85,
    "gemm.compute_efficiency": 0.75,
    "attention.bandwidth_efficiency": 0.8,
    "elementwise.fixed_s": 3e-6,
    "host.step_s": 2e-4,
    "host.sequence_s": 1e-5,
}
WHOLE_STEPS = KERNELS | {
    "prefill.scale": 1.5,
    "prefill.step_s": 1e-3,
    "prefill.activation_factor": 1.5,
    "host.request_s": 0.02,
}


def made(
    model: str,
    parameters: dict[str, float],
    tensor: int = 1,
    device: str = "h100-sxm-80gb",
    engine: str = "vllm",
) -> Setup:
    given = {name: Parameter(value, "", "fitted") for name, value in parameters.items()}
    profile = Profile("by hand", device, engine, "by hand", parameters=given)
    return setup(model, device, profile=profile, parallelism=Parallelism(tensor))


@dataclass(frozen=True)
class Case:
    """A deployment under requests that arrive at a rate, or that so many users keep in flight."""

    where: Setup
    prompt: str
    reply: str
    rate_per_s: float | None = None
    users: int | None = None
    count: int = 8000

    def costs(self) -> ServiceCosts:
        asked = Asked(
            self.where.architecture,
            Traffic(moments(self.prompt), moments(self.reply), self.rate_per_s, self.users),
            Objectives(),
            (self.where.device,),
            Options(),
        )
        return costs_of(asked, [Candidate(self.where, None, 10**6, BUDGET, MOST)])

    def state(self, quantile: float = 0.95) -> State:
        """The steady state that carries the case's traffic."""
        costs, closed = self.costs(), self.users is not None
        reply = moments(self.reply)
        replies = Replies(point(reply.mean), point(reply.variation))
        low, high = 0.0, 2000.0
        for _ in range(50):
            middle = (low + high) / 2
            state = steady(point(middle), replies, costs, quantile, closed)
            carries = state.in_flight[0] if closed else state.rate_per_s[0]
            less = carries < (self.users or self.rate_per_s)
            low, high = (middle, high) if less else (low, middle)
        return steady(point(high), replies, costs, quantile, closed)

    def events(self) -> tuple[Served, np.ndarray]:
        """The same traffic served request by request, and which requests lie in its middle."""
        process = "closed" if self.users else "poisson"
        drawn = Drawn(
            self.count,
            lengths(self.prompt, "input"),
            lengths(self.reply, "output"),
            process,
            self.rate_per_s or 1.0,
            seed=7,
        ).requests()
        if not self.users:  # exactly the rate that is compared with
            span = (self.count - 1) / (self.rate_per_s or 1.0)
            drawn = replace(drawn, arrival_s=drawn.arrival_s * span / drawn.arrival_s[-1])
        longest = int((drawn.input_tokens + drawn.output_tokens).max())
        host = self.where.profile.value("host.request_s", 0.0)
        first = find_engine(self.where.profile.engine).prompts_first
        policy = Policy(40_000_000, BUDGET, MOST, prompts_first=first, request_s=host)
        served = serve(drawn, tabulate(self.where, BUDGET, MOST, longest), policy, self.users)
        order = np.sort(served.requests.arrival_s)
        low, high = order[self.count // 5], order[4 * self.count // 5]
        middle = (served.requests.arrival_s > low) & (served.requests.arrival_s < high)
        return served, middle


def point(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)


def moments(text: str) -> Lengths:
    found = lengths(text, "length")
    deviation = {
        "fixed": 0.0,
        "uniform": (found.second - found.first) / 12**0.5,
        "lognormal": found.first * found.second,
    }
    return Lengths(found.mean, deviation[found.distribution])


def by_token(served: Served, chosen: np.ndarray) -> float:
    """Mean seconds between tokens, each token counted once."""
    steps = served.requests.output_tokens[chosen] - 1
    spent = (served.last_token_s - served.first_token_s)[chosen]
    return float(spent.sum() / steps.sum())


def mean(values: np.ndarray) -> object:
    """The mean of a simulation, to 3 % beyond its own noise: two standard errors, from 16 batches."""
    batches = [batch.mean() for batch in np.array_split(values, 16)]
    noise = float(np.std(batches, ddof=1)) / 4
    return pytest.approx(values.mean(), abs=0.03 * float(values.mean()) + 2 * noise)


LLAMA = made("llama-3.1-8b", KERNELS)
WHOLE = made("llama-3.1-8b", WHOLE_STEPS)
SPREAD, LONG_TAIL = "lognormal:1000:0.5", "lognormal:200:0.7"
OPEN = {
    "nearly idle": Case(LLAMA, "1000", "200", 0.3, count=3000),
    "light": Case(LLAMA, "1000", "200", 5),
    "busy": Case(LLAMA, "1000", "200", 15),
    "whole steps": Case(WHOLE, "1000", "200", 12),
    "spread": Case(LLAMA, SPREAD, LONG_TAIL, 12),
    "long tails": Case(LLAMA, "lognormal:1000:1.18", "lognormal:300:1.18", 8, count=12_000),
    "prompts first": Case(made("llama-3.1-8b", WHOLE_STEPS, engine="sglang"), "1000", "200", 10),
    "short prompts": Case(LLAMA, "100", "300", 30),
    "many a pass": Case(LLAMA, "50", "50", 200),
    "long prompts": Case(LLAMA, "3000", "100", 5, count=12_000),
    "several passes": Case(LLAMA, "20000", "300", 0.6, count=12_000),
    "two ranks": Case(made("llama-3.1-70b", KERNELS, 2, "h200-sxm"), "2000", "300", 1.5),
    "four over PCIe": Case(made("llama-3.1-8b", KERNELS, 4, "rtx-4090"), "1000", "300", 2),
    "experts": Case(made("qwen3-30b-a3b", KERNELS), "1000", "200", 8),
}


@pytest.mark.parametrize("name", OPEN)
def test_agrees_with_the_event_driven_scheduler_at_a_rate(name: str) -> None:
    """Means within 3 %, the 95th percentiles within 10 % for TPOT and 25 % for TTFT."""
    case = OPEN[name]
    ours = case.state()
    served, middle = case.events()
    tpot, ttft = served.tpot_s[middle], served.ttft_s[middle]
    assert float(ours.tpot_s[0]) == pytest.approx(by_token(served, middle), rel=0.03)
    assert float(ours.ttft_s[0]) == mean(ttft)
    assert float(ours.tpot_quantile_s[0]) == pytest.approx(np.nanquantile(tpot, 0.95), rel=0.10)
    assert float(ours.ttft_quantile_s[0]) == pytest.approx(np.quantile(ttft, 0.95), rel=0.25)


@pytest.mark.parametrize("users", [1, 4, 16, 64, 256])
@pytest.mark.parametrize("where", [LLAMA, WHOLE], ids=["kernels", "whole steps"])
def test_agrees_with_the_event_driven_scheduler_in_a_closed_loop(where: Setup, users: int) -> None:
    """TPOT, throughput and TTFT within 3 %, once the common start is forgotten."""
    case = Case(where, SPREAD, LONG_TAIL, users=users, count=max(30 * users, 3000))
    ours = case.state()
    served, middle = case.events()
    ttft, e2e = served.ttft_s[middle], served.e2e_s[middle]
    assert float(ours.tpot_s[0]) == pytest.approx(by_token(served, middle), rel=0.03)
    assert float(ours.rate_per_s[0]) == pytest.approx(users / e2e.mean(), rel=0.03)
    assert float(ours.ttft_s[0]) == mean(ttft)


def test_equal_replies_that_start_together_stay_together() -> None:
    """Where the closed form does not hold: replies within a fifth of each other end in waves.

    Prompts then come in crowds, which wait for one another; tokens take as long, but first ones longer.
    """
    case = Case(WHOLE, "800:1000", "160:200", users=128, count=1500)
    ours = case.state()
    served, middle = case.events()
    assert float(ours.tpot_s[0]) == pytest.approx(by_token(served, middle), rel=0.05)
    assert float(ours.ttft_s[0]) < 0.9 * served.ttft_s[middle].mean()


def flat(decode_s: float, per_sequence_s: float = 0.0) -> ServiceCosts:
    """Steps of decode_s + per_sequence_s a sequence, prompts that cost nothing."""
    steps = decode_s + per_sequence_s * BATCHES
    still = Curve(BATCHES, np.zeros((1, BATCHES.size)))
    return ServiceCosts(
        decode=Curve(BATCHES, steps[None]),
        lone=still,
        among=(still, still),
        alone_s=point(0),
        passes=point(1),
        filled=point(0.1),
        shared=point(0.1),
        square=point(1),
        request_s=point(0),
        riding=np.array([True]),
        ahead=point(1),
        tokens_per_step=point(1),
        stages=point(1),
    )


REPLIES = Replies(point(201), point(0))


def test_littles_law_holds() -> None:
    """In flight = rate x time in the system, whatever the batch."""
    costs = Case(LLAMA, "1000", "201", 1.0).costs()
    for closed in (False, True):
        state = steady(point(40), REPLIES, costs, 0.95, closed)
        life = state.ttft_s + 200 * state.tpot_s
        assert float(state.in_flight[0]) == pytest.approx(float(state.rate_per_s[0] * life[0]))


def test_steps_that_never_grow_serve_like_infinitely_many_servers() -> None:
    """M/G/infinity: the batch is Poisson, deviation sqrt(B); TPOT is the step."""
    state = steady(point(100), REPLIES, flat(0.01), 0.975)
    assert float(state.tpot_s[0]) == pytest.approx(0.01)
    # the 97.5th percentile of a Poisson number of mean 100 is 120
    assert float(state.peak_batch[0]) == pytest.approx(120, abs=0.2)


def test_steps_that_grow_with_the_batch_are_a_processor_sharing_queue() -> None:
    """Steps of a + b j: M/G/1-PS with r n (a + b) / (1 - b r n) in it on average, exactly."""
    a, b, rate, steps = 0.1, 0.001, 2.0, 200
    mean = rate * steps * (a + b) / (1 - b * rate * steps)
    state = steady(point(mean), REPLIES, flat(a, b), 0.95)
    assert float(state.rate_per_s[0]) == pytest.approx(rate, rel=1e-6)


def test_steps_that_grow_make_the_batch_vary_more() -> None:
    """Steps of c (j + 1), half of it fixed at B = 100: variance B / (1 - e), e near 1/2."""
    state = steady(point(100), REPLIES, flat(0.1, 0.001), 0.975)
    assert float(state.peak_batch[0]) == pytest.approx(100 + 1.96 * np.sqrt(200) + 0.47, rel=0.01)


def test_one_user_alone_meets_nobody() -> None:
    """A closed loop of one: a step of one sequence a token, and its own prompt at once."""
    costs = Case(LLAMA, "1000", "201", users=1).costs()
    state = Case(LLAMA, "1000", "201", users=1).state()
    assert float(state.tpot_s[0]) == pytest.approx(float(costs.decode(point(1))[0]), rel=1e-3)
    assert float(state.ttft_s[0]) == pytest.approx(float(costs.alone_s[0]), rel=0.01)


def test_more_traffic_is_never_faster() -> None:
    costs = Case(LLAMA, "1000", "201", 1.0).costs()
    for closed in (False, True):
        states = stacked(np.geomspace(0.1, 1000, 60)[:, None], REPLIES, costs, 0.95, closed)
        for name in ("rate_per_s", "tpot_s", "tpot_quantile_s", "ttft_s", "prompt_load"):
            assert np.all(np.diff(getattr(states, name)[:, 0]) >= -1e-12), (name, closed)


def test_accepting_two_tokens_a_step_halves_the_time_a_token_takes() -> None:
    plain = steady(point(10), REPLIES, flat(0.02), 0.95)
    drafted = steady(point(10), REPLIES, replace(flat(0.02), tokens_per_step=point(2)), 0.95)
    assert float(drafted.tpot_s[0]) == float(plain.tpot_s[0]) / 2
    assert float(drafted.rate_per_s[0]) == 2 * float(plain.rate_per_s[0])
    assert float(drafted.ttft_s[0]) == pytest.approx(float(plain.ttft_s[0]), rel=1e-3)


def test_prompts_beyond_the_budget_queue_without_end() -> None:
    """8,000 prompt tokens for 20 of a reply: no batch lets the passes take more time than there is."""
    costs = Case(made("llama-3.1-70b", KERNELS, 1, "h200-sxm"), "8000", "20", 1.0).costs()
    replies = Replies(point(20), point(0))
    states = stacked(np.geomspace(0.05, 200, 60)[:, None], replies, costs, 0.95)
    assert float(states.prompt_load[-1, 0]) < 1.2
    assert float(states.ttft_quantile_s[-1, 0]) > 5 * float(states.ttft_quantile_s[0, 0])
