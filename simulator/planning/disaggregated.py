"""Prompts and decode on replicas of their own, the cache sent from one to the other.

A prefill replica reads prompts one after another: an M/G/1 queue with service S. A decode replica never
stops for prompts: T = D(B + 1). What is paid for it: the cache of every prompt crosses the link between
them, kv bytes of a rank / link bandwidth, as all ranks send at once; and two pools leave more unused by
rounding than one. Sizes follow from the objectives: prefill replicas from TTFT, decode replicas from
TPOT and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from roofcast.simulator.api import Setup
from roofcast.simulator.open_loop import ServiceCosts, State
from roofcast.simulator.planning.asked import Asked
from roofcast.simulator.planning.candidates import Candidate
from roofcast.simulator.planning.service import Service, limit, operating
from roofcast.simulator.serving import Curve
from roofcast.simulator.techniques import link_bytes_per_s, prompt_cache_bytes
from roofcast.simulator.workload import Array

_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Prefill:
    """The replicas that read prompts: what they run, how many, how busy, and what sending takes."""

    where: Setup
    replicas: int
    load: float
    seconds: float
    transfer_s: float


@dataclass(frozen=True, slots=True)
class Split:
    """Two pools: the decode candidate (by index), its replicas and state; the prefill replicas."""

    decode: int
    replicas: int
    state: State
    capacity: float
    prefill: Prefill
    ttft_s: float
    ttft_quantile_s: float


def splits(asked: Asked, found: Sequence[Candidate], service: Service) -> list[Split]:
    """The smallest pair of pools on each device and for each choice of dtypes, objectives met."""
    if asked.traffic.rate_per_s is None:
        return []
    decode = limit(asked, found, _without_prompts(service.costs))
    transfer = np.array([transfer_s(asked, each.where) for each in found])
    loads, seconds = _prefill_loads(asked, service, transfer)
    sizes = np.array([each.where.parallelism.devices for each in found])
    rate = asked.traffic.rate_per_s
    readers = np.ceil(np.where(loads > 0, rate * seconds / np.maximum(loads, 1e-9), np.inf))
    writers = np.ceil(rate / np.maximum(decode.most.rate_per_s, 1e-12) - 1e-6)
    writers = np.where(decode.possible, np.maximum(writers, 1.0), np.inf)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, each in enumerate(found):
        key = (each.where.device.id, each.weight_dtype, each.where.kv_dtype)
        groups.setdefault(key, []).append(index)
    made = []
    for members in groups.values():
        reader = min(members, key=lambda i: float(readers[i] * sizes[i]))
        writer = min(members, key=lambda i: float(writers[i] * sizes[i]))
        if np.isfinite(readers[reader]) and np.isfinite(writers[writer]):
            pool = Prefill(
                where=found[reader].where,
                replicas=int(readers[reader]),
                load=float(rate * seconds[reader] / readers[reader]),
                seconds=float(seconds[reader]),
                transfer_s=float(transfer[reader]),
            )
            made.append(_split(asked, decode, writer, int(writers[writer]), pool, service))
    return made


def _split(
    asked: Asked, decode: Service, writer: int, replicas: int, pool: Prefill, service: Service
) -> Split:
    rate = np.full_like(decode.most.rate_per_s, asked.traffic.amount / replicas)
    state = operating(asked, decode, rate)
    variation = asked.traffic.prompt.variation
    quantile = asked.objectives.percentile / 100
    mean, slow = _answered(np.array(pool.load), np.array(pool.seconds), variation, quantile)
    step = float(state.tpot_s[writer])
    return Split(
        decode=writer,
        replicas=replicas,
        state=state,
        capacity=float(decode.most.rate_per_s[writer]),
        prefill=pool,
        ttft_s=float(mean) + pool.transfer_s + step,
        ttft_quantile_s=float(slow) + pool.transfer_s + step,
    )


def transfer_s(asked: Asked, where: Setup) -> float:
    """Seconds to send the cache of one mean prompt: each rank its own part, over its own adapter.

    Over the network where the device has one, else over what joins devices in a node.
    """
    held = prompt_cache_bytes(where, asked.traffic.prompt.mean)
    return held / link_bytes_per_s(where.device)


def _without_prompts(costs: ServiceCosts) -> ServiceCosts:
    still = Curve(costs.lone.batches, np.zeros_like(costs.lone.step_s))
    return replace(costs, lone=still, among=(still,) * len(costs.among))


def _prefill_loads(asked: Asked, service: Service, transfer: Array) -> tuple[Array, Array]:
    """The highest load of prefill replicas that meets TTFT (0: none does), and seconds a prompt."""
    costs, seconds = service.costs, service.costs.alone_s
    variation = asked.traffic.prompt.variation
    goal = asked.objectives.ttft_s
    if goal is None:
        return np.full_like(seconds, 0.9), seconds
    quantile = asked.objectives.percentile / 100
    step = asked.objectives.tpot_s or service.idle.tpot_s  # the first step after the transfer
    low, high = np.zeros_like(seconds), np.full_like(seconds, 0.95)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slow = _answered(middle, seconds * costs.stages, variation, quantile)[1]
        fine = slow + transfer + step <= goal
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return np.where(low > 1e-6, low, 0.0), seconds


def _answered(
    load: Array, seconds: Array, variation: Array | float, quantile: float
) -> tuple[Array, Array]:
    """Mean and quantile of wait plus reading for M/G/1 at a load (Pollaczek and Khinchine).

    >>> mean, _ = _answered(np.array(0.5), np.array(1.0), 0.0, 0.95)  # 1 + 0.5 / (2 x 0.5)
    >>> float(mean)
    1.5
    """
    wait = load * seconds * (1.0 + np.square(variation)) / (2.0 * (1.0 - load))
    unlikely = np.log(np.maximum(load / (1.0 - quantile), 1.0))
    tail = np.maximum(wait / np.maximum(load, 1e-9) * unlikely - wait, 0.0)
    longer = NormalDist().inv_cdf(quantile) * variation * seconds
    return np.asarray(wait + seconds), np.asarray(wait + seconds + np.hypot(tail, longer))
