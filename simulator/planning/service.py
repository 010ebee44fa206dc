"""How much traffic each candidate serves within the objectives, and what stops it: all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.simulator.engines import find_engine
from roofcast.simulator.open_loop import Replies, ServiceCosts, State, stacked, steady
from roofcast.simulator.planning.asked import Asked, Options
from roofcast.simulator.planning.candidates import Candidate
from roofcast.simulator.planning.costing import BATCHES, CostTable, Lengths, StepCosts
from roofcast.simulator.planning.speculation import draft_setup
from roofcast.simulator.serving import Curve
from roofcast.simulator.serving_costs import request_s
from roofcast.simulator.workload import Array

_GRID, _HALVINGS, _SETTLED, _EMPTY = 40, 12, 16, 0.02
_FULL_LOAD = 0.98

LIMITS: Final = (
    "the TPOT objective",
    "the TTFT objective",
    "the KV cache",
    "the engine's limit of sequences",
    "reading prompts",
)
"""What can stop a replica from taking more, in the order they are named."""


@dataclass(frozen=True, slots=True)
class Service:
    """What each candidate can do: its state at most traffic, what binds there, and when nearly empty.

    `possible` is false where the objectives fail even for a single user.
    """

    replies: Replies
    costs: ServiceCosts
    most: State
    binds: NDArray[np.int64]
    idle: State
    possible: NDArray[np.bool_]


def serve(asked: Asked, found: Sequence[Candidate]) -> Service:
    """Every candidate's limits under the traffic's lengths and the objectives."""
    return limit(asked, found, costs_of(asked, found))


def limit(asked: Asked, found: Sequence[Candidate], costs: ServiceCosts) -> Service:
    """The most traffic of each candidate: the last batch from the smallest up that breaks no limit."""
    reply = asked.traffic.reply
    replies = Replies(np.full(len(found), reply.mean), np.full(len(found), reply.variation))
    closed = asked.traffic.users is not None
    room = np.array([float(each.room) for each in found])
    sequences = np.array([float(each.sequences) for each in found])
    limits = _Limits(asked, room, sequences)
    top = np.maximum(np.minimum(room, sequences), 2 * _EMPTY)
    grid = np.geomspace(np.full_like(top, _EMPTY), top, _GRID)
    quantile = asked.objectives.percentile / 100
    states = stacked(grid, replies, costs, quantile, closed)
    broken = limits.broken(states).any(axis=0)
    first = np.where(broken.any(axis=0), np.argmax(broken, axis=0), _GRID)
    columns = np.arange(len(found))
    low = grid[np.maximum(first - 1, 0), columns]
    high = grid[np.minimum(first, _GRID - 1), columns]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        over = limits.broken(steady(middle, replies, costs, quantile, closed)).any(axis=0)
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    beyond = limits.broken(steady(high * 1.02, replies, costs, quantile, closed))
    return Service(
        replies=replies,
        costs=costs,
        most=steady(low, replies, costs, quantile, closed),
        binds=np.argmax(beyond, axis=0),
        idle=steady(grid[0], replies, costs, quantile, closed),
        possible=first > 0,
    )


def operating(asked: Asked, service: Service, amount: Array) -> State:
    """The state of each candidate when each replica takes `amount`, at most what it can take.

    A state carries more traffic the larger its batch, so that halving finds it.
    """
    quantile, closed = asked.objectives.percentile / 100, asked.traffic.users is not None
    low, high = np.zeros_like(service.most.batch), service.most.batch
    for _ in range(_SETTLED):
        middle = (low + high) / 2
        state = steady(middle, service.replies, service.costs, quantile, closed)
        less = amounts(asked, state) < amount
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return steady(high, service.replies, service.costs, quantile, closed)


def amounts(asked: Asked, state: State) -> Array:
    """The traffic a state carries, as it is asked: requests per second, or requests in flight."""
    return state.rate_per_s if asked.traffic.users is None else state.in_flight


@dataclass(frozen=True, slots=True)
class _Limits:
    asked: Asked
    room: Array
    sequences: Array

    def broken(self, state: State) -> NDArray[np.bool_]:
        """(limits, ...) whether each of LIMITS is exceeded."""
        goals = self.asked.objectives
        tpot = np.inf if goals.tpot_s is None else goals.tpot_s
        ttft = np.inf if goals.ttft_s is None else goals.ttft_s
        return np.stack(
            [
                state.tpot_quantile_s > tpot,
                state.ttft_quantile_s > ttft,
                state.peak_batch > np.maximum(self.room, 1.0),
                state.peak_batch > self.sequences,
                state.prompt_load > _FULL_LOAD,
            ]
        )


def costs_of(asked: Asked, found: Sequence[Candidate]) -> ServiceCosts:
    """What steps take on every candidate."""
    traffic, options = asked.traffic, asked.options
    hits = traffic.prompt.mean * traffic.prefix_hits
    lengths = Lengths(
        context=traffic.decode_context,
        prompt=max(traffic.prompt.mean - hits, 1.0),
        cached=hits,
        variation=traffic.prompt.variation,
        longest=asked.model.max_context or np.inf,
    )
    table = CostTable(lengths, options.offload)
    engines = [find_engine(each.where.kernels or each.where.profile.engine) for each in found]
    riding = np.array([not engine.prompts_first for engine in engines])
    each = [
        _steps(table, candidate, bool(rides), options)
        for candidate, rides in zip(found, riding, strict=True)
    ]
    tokens = 1.0 if options.speculation is None else options.speculation.tokens_per_step
    stages = np.array([float(each.where.parallelism.pipeline) for each in found])

    def values(name: str) -> Array:
        return np.array([getattr(costs, name) for costs in each])

    return ServiceCosts(
        decode=Curve(BATCHES, values("decode_s")),
        # a microbatch with a prompt passes all stages in turn, and the others cannot pass it
        lone=Curve(BATCHES, values("lone_s") * stages[:, np.newaxis]),
        among=tuple(Curve(BATCHES, crowd) for crowd in values("among_s").swapaxes(0, 1)),
        alone_s=values("alone_s"),
        passes=values("passes"),
        filled=values("filled"),
        shared=values("shared"),
        square=values("square"),
        request_s=np.array([request_s(one.where.profile, traffic.prompt.mean) for one in found]),
        riding=riding,
        ahead=np.ones(len(found)),  # as schedulers do that overlap with the step that runs
        tokens_per_step=np.full(len(found), tokens),
        stages=stages,
    )


def _steps(table: CostTable, candidate: Candidate, riding: bool, options: Options) -> StepCosts:
    """A candidate's steps; with speculation a step verifies what the draft's steps proposed."""
    steps = table.of(candidate.where, candidate.budget, riding)
    speculation = options.speculation
    if speculation is None:
        return steps
    verified = table.decode(candidate.where, speculation.tokens + 1)
    drafter = draft_setup(candidate.where, speculation)
    if drafter is not None:
        verified = verified + speculation.tokens * table.decode(drafter)
    return replace(steps, decode_s=verified)
