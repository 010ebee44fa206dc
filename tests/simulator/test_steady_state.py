"""The closed form of a steady state against the event-driven simulator: two ways to one number."""

import numpy as np
import pytest

from roofcast.hardware.profile import Parameter, Profile
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.serving import Load, Scheduler, closed_loop
from roofcast.simulator.serving_costs import costs
from roofcast.simulator.simulation import simulation
from roofcast.simulator.traffic import Traffic, lengths

SHORTEST = 0.8
DECODE = {
    "gemm.bandwidth_efficiency": 0.85,
    "gemm.compute_efficiency": 0.75,
    "attention.bandwidth_efficiency": 0.8,
    "elementwise.fixed_s": 3e-6,
    "host.step_s": 2e-4,
    "host.sequence_s": 1e-5,
}
PROMPTS = {"prefill.scale": 1.5, "prefill.step_s": 1e-3, "prefill.activation_factor": 1.5}


def served_by(parameters: dict[str, float], device: str = "h100-sxm-80gb") -> Setup:
    given = {name: Parameter(value, "", "fitted") for name, value in parameters.items()}
    profile = Profile("by hand", device, "vllm", "by hand", parameters=given)
    return setup("llama-3.1-8b", device, profile=profile)


def events(where: Setup, at_once: int, prompt: int, reply: int) -> tuple[float, float]:
    """Output tokens/s and mean TPOT of the middle of a long closed loop, by Little's law."""
    traffic = Traffic(
        count=max(12 * at_once, 300),
        input_tokens=lengths(f"uniform:{round(SHORTEST * prompt)}:{prompt}", "input"),
        output_tokens=lengths(f"uniform:{round(SHORTEST * reply)}:{reply}", "output"),
        process="closed",
    )
    trace = traffic.requests()
    served = simulation(where, trace).run(trace, at_once)
    assert not served.preemptions.any()
    order = np.sort(served.requests.arrival_s)
    low, high = order[len(order) // 4], order[2 * len(order) // 3]
    middle = (served.requests.arrival_s > low) & (served.requests.arrival_s < high)
    mean = trace.output_tokens[middle].mean()
    return at_once * mean / served.e2e_s[middle].mean(), served.tpot_s[middle].mean()


def closed_form(where: Setup, at_once: int, prompt: int, reply: int) -> tuple[float, float]:
    """The same from the equations, the start of the loop long forgotten."""
    mean_in, mean_out = (length * (1 + SHORTEST) / 2 for length in (prompt, reply))
    one = np.ones(1)
    load = Load(at_once * one, mean_in * one, mean_out * one, SHORTEST * one, waves=1000)
    budget = 8192.0 * one
    vllm = Scheduler(np.array([False]), token_budget=budget, poll_steps=one, wait_steps=one)
    steady = closed_loop(load, costs(where, mean_in + mean_out / 2, [mean_in]), vllm)
    e2e = steady.ttft_s + (mean_out - 1) * steady.tpot_s
    return float(at_once * mean_out / e2e[0]), float(steady.tpot_s[0])


@pytest.mark.parametrize("parameters", [DECODE, DECODE | PROMPTS], ids=["kernels", "whole steps"])
@pytest.mark.parametrize(
    ("at_once", "prompt", "reply"),
    [(1, 1000, 200), (4, 1000, 200), (16, 1000, 200), (64, 1000, 200), (256, 1000, 200),
     (64, 200, 1000), (32, 4000, 200)],
)  # fmt: skip
def test_both_agree(parameters: dict[str, float], at_once: int, prompt: int, reply: int) -> None:
    where = served_by(parameters)
    rate, tpot = events(where, at_once, prompt, reply)
    steady_rate, steady_tpot = closed_form(where, at_once, prompt, reply)
    assert steady_rate == pytest.approx(rate, rel=0.03)
    assert steady_tpot == pytest.approx(tpot, rel=0.03)


def test_both_agree_where_mixed_steps_repeat_reads() -> None:
    where = served_by(DECODE, "rtx-pro-6000-blackwell-server")
    rate, tpot = events(where, 64, 1000, 200)
    steady_rate, steady_tpot = closed_form(where, 64, 1000, 200)
    assert steady_rate == pytest.approx(rate, rel=0.03)
    assert steady_tpot == pytest.approx(tpot, rel=0.03)
