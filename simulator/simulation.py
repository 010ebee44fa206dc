"""A trace on a deployment: from a `Setup` and how its engine is launched to what its users see."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator.api import Setup
from roofcast.simulator.batching import Served, serve
from roofcast.simulator.engines import find_engine
from roofcast.simulator.layouts import require_servable
from roofcast.simulator.memory import Memory, memory
from roofcast.simulator.requests import Requests
from roofcast.simulator.scheduler import Policy
from roofcast.simulator.serving_costs import request_s
from roofcast.simulator.step_time import StepTimes, tabulate
from roofcast.simulator.workload import Workload


@dataclass(frozen=True, slots=True)
class Simulation:
    """A deployment ready to serve: the scheduler's limits and the duration of any step."""

    where: Setup
    policy: Policy
    times: StepTimes

    def run(self, requests: Requests, concurrency: int | None = None) -> Served:
        """Serve a trace; with `concurrency` as a closed loop."""
        return serve(requests, self.times, self.policy, concurrency)


def simulation(where: Setup, requests: Requests, kv_tokens: int | None = None) -> Simulation:
    """The deployment that serves such requests.

    `where.launch` overrides the engine's own token budget, sequences at once and page size; `kv_tokens`
    the cache that the memory ledger finds room for. Raises CapacityError where there is no room,
    InputError for a layout that engines refuse.
    """
    require_servable(where.architecture, where.parallelism)
    total = requests.input_tokens + requests.output_tokens
    where.check_context(float(total.max()))
    policy = scheduling(where, requests, kv_tokens)
    policy.check(requests)
    most = min(policy.max_sequences, len(requests))
    times = tabulate(where, policy.token_budget, most, int(total.max()))
    return Simulation(where, policy, times)


def scheduling(where: Setup, requests: Requests, kv_tokens: int | None = None) -> Policy:
    """The scheduler's limits as the engine would set them on this device, for such requests."""
    longest = float(np.max(requests.input_tokens + requests.output_tokens))
    groups = where.parallelism.data
    ledger = memory(where.costed(Workload.decode(groups, longest - 1.0)), where.device)
    if kv_tokens is None:
        kv_tokens = int(float(ledger.cache_room_bytes) / _bytes_per_token(where, requests)) * groups
    if kv_tokens < 1:
        raise CapacityError(_no_room(where, ledger))
    engine = ledger.policy
    budget = max(engine.token_budget, 1)
    if where.launch.max_sequences is None:
        sequences = min(engine.sequences, budget)
    else:
        sequences = engine.sequences
    return Policy(
        kv_tokens=kv_tokens,
        token_budget=budget,
        max_sequences=sequences,
        block_tokens=engine.block_tokens or 1,
        prompts_first=find_engine(where.kernels or where.profile.engine).prompts_first,
        request_s=float(request_s(where.profile, np.mean(requests.input_tokens))),
    )


def _no_room(where: Setup, ledger: Memory) -> str:
    """Which line of the ledger leaves no cache."""
    largest = max(
        (line for line in ledger.lines if line.inside), key=lambda line: float(line.bytes)
    )
    taken, usable = float(largest.bytes), float(ledger.usable_bytes)
    return (
        f"{where.architecture.name} on {where.parallelism.devices} x {where.device.id} leaves no "
        f"memory for a KV cache: {largest.name} take {taken / 1e9:.1f} GB of the "
        f"{usable / 1e9:.1f} GB that a device can use"
    )


def _bytes_per_token(where: Setup, requests: Requests) -> float:
    """Cache bytes a token takes in a request of mean length, windows and states included."""
    mean = float(np.mean(requests.input_tokens + requests.output_tokens / 2.0))
    tokens = max(round(mean), 1)
    ledger = memory(where.costed(Workload.decode(1, tokens - 1.0)), where.device)
    each = float(ledger.cache_bytes) / tokens
    if not each > 0:
        raise InputError(f"{where.architecture.name} keeps no cache: give --kv-tokens")
    return each


def launched(
    where: Setup,
    token_budget: int | None = None,
    max_sequences: int | None = None,
    block_tokens: int | None = None,
) -> Setup:
    """The same setup, its engine launched with these limits; None keeps the engine's own."""
    launch = replace(
        where.launch,
        token_budget=token_budget,
        max_sequences=max_sequences,
        block_tokens=block_tokens,
    )
    return replace(where, launch=launch)
