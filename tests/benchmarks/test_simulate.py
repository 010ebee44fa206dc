"""100,000 requests through the event-driven simulator; run with `pytest tests/benchmarks -s`."""

import sys
from time import process_time

import pytest

from roofcast.simulator.scenario import Scenario, simulate

REQUESTS, LIMIT_S = 100_000, 30.0


@pytest.mark.parametrize("rate", [5.0, 30.0, 120.0], ids=["light", "full", "overloaded"])
def test_a_hundred_thousand_requests(rate, capsys):
    scenario = Scenario(
        model="llama-3.1-8b",
        device="h100-sxm-80gb",
        engine="vllm",
        rate=rate,
        requests=REQUESTS,
        input="lognormal:1000:0.5",
        output="lognormal:200:0.5",
    )
    start = process_time()
    outcome = simulate(scenario)
    seconds = process_time() - start
    steps = outcome.summary.steps
    with capsys.disabled():
        sys.stdout.write(
            f"\n{REQUESTS:,} requests at {rate:g}/s: {steps:,} steps in {seconds:.1f} s of processor "
            f"time, {seconds / steps * 1e6:.1f} us a step, limit {LIMIT_S:g} s\n"
        )
    assert (outcome.served.last_token_s > 0).all()
    assert seconds < LIMIT_S
