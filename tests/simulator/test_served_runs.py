"""The simulator against two runs of a real engine: same arrivals and lengths, same limits.

Nothing was fitted to these runs: profiles come from kernels timed alone, the scheduler from vLLM's
source, the size of the cache from the memory ledger.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofcast.simulator.api import setup
from roofcast.simulator.batching import Served
from roofcast.simulator.requests import requests
from roofcast.simulator.simulation import launched, simulation

FACTS = json.loads((Path(__file__).parents[1] / "data" / "served_runs.json").read_text())
RUNS = {run["device"]: run for run in FACTS["runs"]}


@cache
def served(device: str) -> Served:
    run = RUNS[device]
    where = setup(FACTS["model"], device, engine="vllm")
    limited = launched(where, run["token_budget"], run["max_sequences"])
    arrival_s = np.array(run["arrival_ms"]) / 1e3
    trace = requests(arrival_s, run["input_tokens"], run["output_tokens"])
    return simulation(limited, trace).run(trace)


def each(name: str) -> Any:
    return pytest.mark.parametrize(name, list(RUNS))


@each("device")
def test_throughput(device: str) -> None:
    measured = RUNS[device]["output_tokens_per_s"]
    assert served(device).output_tokens_per_s == pytest.approx(measured, rel=0.05)


@each("device")
@pytest.mark.parametrize("metric", ["ttft_s", "tpot_s"])
def test_latency(device: str, metric: str) -> None:
    values, measured = getattr(served(device), metric), RUNS[device][metric]
    assert np.median(values) == pytest.approx(measured["median"], rel=0.10)
    assert np.quantile(values, 0.95) == pytest.approx(measured["p95"], rel=0.20)


@each("device")
@pytest.mark.parametrize("name", ["running", "waiting"])
def test_counts_over_time(device: str, name: str) -> None:
    """The curves lie within a twentieth of the highest count of each other, on average."""
    run, steps = RUNS[device], served(device).timeline
    measured = np.array(run[name])
    times = run["counts_every_s"] * np.arange(1, len(measured) + 1)
    at = np.minimum(np.searchsorted(steps.end_s, times), len(steps.end_s) - 1)
    ours = np.where(times > steps.end_s[-1], 0, getattr(steps, name)[at])
    assert np.abs(ours - measured).mean() < 0.05 * measured.max()


def test_the_small_card_is_full_and_preempts() -> None:
    """24 GB leave room for 41.6 thousand tokens, as vLLM said when it started."""
    small = served("rtx-4090")
    assert small.policy.kv_tokens == pytest.approx(41_600, rel=0.02)
    assert small.preemptions.sum() > 100
    assert served("rtx-pro-6000-blackwell-server").preemptions.sum() == 0
