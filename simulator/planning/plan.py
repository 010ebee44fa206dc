"""The plan: every deployment that meets the objectives, ranked, and what became of the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator.api import Setup
from roofcast.simulator.memory import Memory
from roofcast.simulator.open_loop import VALID_LOAD, State
from roofcast.simulator.planning.asked import Asked, Rank
from roofcast.simulator.planning.candidates import Candidate, Rejections, candidates, held
from roofcast.simulator.planning.disaggregated import Prefill, splits
from roofcast.simulator.planning.prices import Price, listed, watts
from roofcast.simulator.planning.service import LIMITS, Service, amounts, operating, serve
from roofcast.simulator.workload import Array

NO_PRICE = "no price is known (--price DEVICE=USD_PER_HOUR)"
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Deployment:
    """Replicas of one set-up that serve the whole traffic within the objectives.

    Times are means, quantiles where the name says so, at the traffic asked. `capacity` is the traffic
    one replica could take, `headroom` how much more all of them could than is asked, as a fraction.
    `binds` is what stops a replica there, `prompt_load` the share of its time that prompts take. Costs
    and energy are at the traffic asked. `prefill` holds the replicas that read prompts where those are
    not the ones that decode.
    """

    where: Setup
    weight_dtype: str | None
    replicas: int
    batch: float
    tpot_s: float
    tpot_quantile_s: float
    ttft_s: float
    ttft_quantile_s: float
    output_tokens_per_s: float
    capacity: float
    headroom: float
    binds: str
    prompt_load: float
    price: Price | None
    usd_per_hour: float | None
    watts: float | None
    prefill: Prefill | None = None

    @property
    def devices(self) -> int:
        """Devices of all replicas, those that only read prompts included."""
        own = self.replicas * self.where.parallelism.devices
        return own + (devices_of(self.prefill) if self.prefill else 0)

    @property
    def certain(self) -> bool:
        """Whether the steady state's closed form was checked at such a load (see open_loop)."""
        return self.prompt_load <= VALID_LOAD

    @property
    def tokens_per_s_per_user(self) -> float:
        """Output tokens a second that one user sees."""
        return 1.0 / self.tpot_s

    @property
    def tokens_per_s_per_device(self) -> float:
        """Output tokens a second and device, at the traffic asked."""
        return self.output_tokens_per_s / self.devices

    @property
    def usd_per_million_tokens(self) -> float | None:
        """Cost of a million output tokens at the traffic asked; prompts are in it."""
        if self.usd_per_hour is None:
            return None
        return self.usd_per_hour / (self.output_tokens_per_s * 3600) * 1e6

    @property
    def joules_per_token(self) -> float | None:
        """Energy of an output token: what all devices draw over the tokens of a second."""
        return None if self.watts is None else self.watts / self.output_tokens_per_s

    def memory(self, asked: Asked) -> Memory:
        """The ledger of a replica's fullest device at the batch it runs."""
        groups = self.where.parallelism.data
        batch = max(math.ceil(self.batch / groups), 1) * groups
        context = np.array(round(asked.traffic.decode_context), dtype=np.float64)
        return held(asked.options, self.where, batch, context)


@dataclass(frozen=True)
class Reachable:
    """The best that any deployment does for one objective with a single user, and by which bound."""

    name: str
    seconds: float
    where: Setup
    bound: str


@dataclass(frozen=True)
class Plan:
    """Deployments, best first; why others were rejected; the best reachable where none is left."""

    asked: Asked
    deployments: tuple[Deployment, ...]
    rejected: Mapping[str, int]
    examples: Mapping[str, str]
    reachable: tuple[Reachable, ...]

    @property
    def tried(self) -> int:
        """Deployments considered, rejected ones included."""
        return len(self.deployments) + sum(self.rejected.values())

    def best_by_device(self) -> tuple[Deployment, ...]:
        """The best deployment of each device, best first."""
        best: dict[str, Deployment] = {}
        for deployment in self.deployments:
            best.setdefault(deployment.where.device.id, deployment)
        return tuple(best.values())


def plan(asked: Asked) -> Plan:
    """Search all deployments. CapacityError where the model fits on none of the devices."""
    rejected = Rejections(Counter(), {})
    found = list(candidates(asked, rejected))
    if not found:
        raise CapacityError(nowhere(asked, rejected))
    service = serve(asked, found)
    deployments = _deployments(asked, found, service, rejected)
    return Plan(
        asked=asked,
        deployments=tuple(sorted(deployments, key=lambda each: _order(each, asked.rank))),
        rejected=dict(rejected.counts.most_common()),
        examples=rejected.example,
        reachable=() if deployments else _reachable(asked, found, service),
    )


def nowhere(asked: Asked, rejected: Rejections) -> str:
    """Why nothing is left, in one line."""
    reasons = "; ".join(f"{reason} ({count})" for reason, count in rejected.counts.most_common(3))
    return (
        f"{asked.model.name} runs on none of the {len(asked.devices)} devices with up to "
        f"{asked.options.replica_devices} of them a replica: {reasons}"
    )


def _deployments(
    asked: Asked, found: Sequence[Candidate], service: Service, rejected: Rejections
) -> list[Deployment]:
    capacity = amounts(asked, service.most)
    whole = np.maximum(np.ceil(asked.traffic.amount / capacity - _TOLERANCE), 1.0)
    amount = asked.traffic.amount / whole
    state = operating(asked, service, amount)
    made = []
    for index, candidate in enumerate(found):
        where = candidate.where
        if not service.possible[index]:
            broken = _impossible(asked, service.idle, index)
            rejected.add(f"{broken} is missed even with one user", _short(where))
            continue
        price = asked.prices.get(where.device.id) or listed(where.device)
        if price is None and asked.rank == "cost":
            rejected.add(NO_PRICE, where.device.id)
            continue
        made.append(_deployment(asked, candidate, price, state, index, capacity, whole, service))
    if asked.options.disaggregated:
        made += _in_two_pools(asked, found, service)
    return made


def _in_two_pools(
    asked: Asked, found: Sequence[Candidate], service: Service
) -> Iterator[Deployment]:
    """Deployments that read prompts on replicas of their own."""
    for split in splits(asked, found, service):
        candidate = found[split.decode]
        price = asked.prices.get(candidate.where.device.id) or listed(candidate.where.device)
        if price is None and asked.rank == "cost":
            continue
        whole = np.full(len(found), float(split.replicas))
        capacity = np.full(len(found), split.capacity)
        one = _deployment(
            asked, candidate, price, split.state, split.decode, capacity, whole, service
        )
        more = 1.0 + devices_of(split.prefill) / one.devices
        yield replace(
            one,
            prefill=split.prefill,
            ttft_s=split.ttft_s,
            ttft_quantile_s=split.ttft_quantile_s,
            usd_per_hour=one.usd_per_hour and one.usd_per_hour * more,
            watts=one.watts and one.watts * more,
        )


def devices_of(pool: Prefill) -> int:
    """Devices that only read prompts."""
    return pool.replicas * pool.where.parallelism.devices


def _deployment(
    asked: Asked,
    candidate: Candidate,
    price: Price | None,
    state: State,
    index: int,
    capacity: Array,
    whole: Array,
    service: Service,
) -> Deployment:
    where, replicas = candidate.where, int(whole[index])
    devices = replicas * where.parallelism.devices
    served = float(state.rate_per_s[index]) * replicas * asked.traffic.reply.mean
    known = where.device.tdp_w is not None
    return Deployment(
        where=where,
        weight_dtype=candidate.weight_dtype,
        replicas=replicas,
        batch=float(state.batch[index]),
        tpot_s=float(state.tpot_s[index]),
        tpot_quantile_s=float(state.tpot_quantile_s[index]),
        ttft_s=float(state.ttft_s[index]),
        ttft_quantile_s=float(state.ttft_quantile_s[index]),
        output_tokens_per_s=served,
        capacity=float(capacity[index]),
        headroom=float(capacity[index]) * replicas / asked.traffic.amount - 1.0,
        binds=LIMITS[int(service.binds[index])],
        prompt_load=float(state.prompt_load[index]),
        price=price,
        usd_per_hour=None
        if price is None
        else devices * price.usd_per_hour(where.device, asked.power),
        watts=devices * watts(where.device, asked.power) if known else None,
    )


def _impossible(asked: Asked, idle: State, index: int) -> str:
    goals = asked.objectives
    if goals.tpot_s is not None and idle.tpot_quantile_s[index] > goals.tpot_s:
        return LIMITS[0]
    return LIMITS[1] if goals.ttft_s is not None else LIMITS[2]


def _reachable(asked: Asked, found: Sequence[Candidate], service: Service) -> tuple[Reachable, ...]:
    """The shortest times with one user, and what bounds them."""
    goals, idle = asked.objectives, service.idle
    best = []
    for name, goal, seconds in (
        ("TPOT", goals.tpot_s, idle.tpot_quantile_s),
        ("TTFT", goals.ttft_s, idle.ttft_quantile_s),
    ):
        if goal is None:
            continue
        index = int(np.argmin(seconds))
        where = found[index].where
        best.append(Reachable(name, float(seconds[index]), where, _bound(asked, where, name)))
    return tuple(best)


def _bound(asked: Asked, where: Setup, name: str) -> str:
    if name == "TPOT":
        step = where.decode(where.parallelism.data, round(asked.traffic.decode_context))
    else:
        step = where.prefill(1, max(round(asked.traffic.prompt.mean), 1))
    return str(np.ravel(step.bound)[0])


def _order(deployment: Deployment, rank: Rank) -> tuple[float, ...]:
    cost = deployment.usd_per_hour if deployment.usd_per_hour is not None else math.inf
    latency = (deployment.tpot_quantile_s, deployment.ttft_quantile_s)
    if rank == "latency":
        return (*latency, cost)
    if rank == "throughput":
        per_device = deployment.capacity / deployment.where.parallelism.devices
        return (-per_device, cost, *latency)
    return (cost, deployment.devices, *latency)


def _short(where: Setup) -> str:
    return f"{where.parallelism.devices} x {where.device.id}"


def check_rank(rank: str) -> Rank:
    """A ranking by its name; InputError for another one."""
    if rank not in ("cost", "throughput", "latency"):
        raise InputError(f"rank by cost, throughput or latency, not {rank!r}")
    return rank  # type: ignore[return-value]
