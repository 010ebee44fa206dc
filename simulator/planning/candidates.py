"""Every deployment worth costing, and why the others are not: layouts, devices, dtypes, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError
from roofcast.hardware.links import node_devices
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.layouts import expert_counts, refusal
from roofcast.simulator.memory import Line, Memory, memory
from roofcast.simulator.planning.asked import Asked, Options
from roofcast.simulator.planning.speculation import draft_bytes
from roofcast.simulator.quantization import requantise
from roofcast.simulator.workload import Array, Parallelism, Workload

NETWORK = "needs a network between nodes (--network)"
WEIGHTS = "the weights do not fit"
ONE_REQUEST = "the cache of one longest request does not fit"
OFFLOADED = "experts in host memory"
"""A line of the ledger that takes weights away from the device."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A set-up that holds the model, and how many mean requests it can hold at once."""

    where: Setup
    weight_dtype: str | None
    room: int
    budget: int
    sequences: int


@dataclass
class Rejections:
    """Why deployments were left out, counted, with one that stands for each."""

    counts: Counter[str]
    example: dict[str, str]

    def add(self, reason: str, example: str, count: int = 1) -> None:
        """Count a reason; the first example is kept."""
        self.counts[reason] += count
        self.example.setdefault(reason, example)


def layouts(model: Architecture, options: Options) -> Iterator[Parallelism]:
    """Every layout of the sizes to try within the devices of a replica."""
    has_experts = bool(expert_counts(model))
    for tensor in options.tensor:
        for pipeline in options.pipeline:
            for data in options.data if has_experts else (1,):
                if tensor * pipeline * data > options.replica_devices:
                    continue
                for expert in _experts(options, tensor * data, has_experts):
                    yield Parallelism(tensor, pipeline, expert, data)


def _experts(options: Options, ranks: int, has_experts: bool) -> tuple[int, ...]:
    if not has_experts:
        return (1,)
    if options.expert is None:
        return tuple(dict.fromkeys((1, ranks)))
    return tuple(size for size in options.expert if ranks % size == 0)


def candidates(asked: Asked, rejected: Rejections) -> Iterator[Candidate]:
    """Every deployment that an engine accepts and that holds weights and one longest request."""
    options = asked.options
    allowed = []
    for layout in layouts(asked.model, options):
        problem = refusal(asked.model, layout)
        if problem:
            each = len(asked.devices) * len(options.weight_dtypes) * len(options.kv_dtypes)
            rejected.add(problem, str(layout), each)
        else:
            allowed.append(layout)
    stored = {
        name: requantise(asked.model, name) if name else asked.model
        for name in options.weight_dtypes
    }
    for device in asked.devices:
        yield from _on_device(asked, device, stored, allowed, rejected)


def _on_device(
    asked: Asked,
    device: Accelerator,
    stored: Mapping[str | None, Architecture],
    allowed: list[Parallelism],
    rejected: Rejections,
) -> Iterator[Candidate]:
    options = asked.options
    dtypes = list(product(stored, options.kv_dtypes))
    try:
        base = setup(asked.model, device, engine=options.engine, profile=options.profile)
    except InputError as error:
        rejected.add(str(error), device.id, len(allowed) * len(dtypes))
        return
    for (weight_dtype, kv_dtype), layout in product(dtypes, allowed):
        if layout.devices > node_devices(device) and device.network_bytes_per_s is None:
            rejected.add(NETWORK, f"{layout.devices} x {device.id}")
            continue
        where = replace(
            base,
            architecture=stored[weight_dtype],
            parallelism=layout,
            kv_dtype=kv_dtype or base.kv_dtype,
            launch=options.launch,
        )
        found = _held(asked, where, weight_dtype)
        if isinstance(found, Candidate):
            yield found
        else:
            rejected.add(found, f"{layout.devices} x {device.id}")


def _held(asked: Asked, where: Setup, weight_dtype: str | None) -> Candidate | str:
    """The candidate, or the line of memory that rules it out."""
    groups = where.parallelism.data
    tokens = np.array([asked.traffic.decode_context, asked.traffic.longest]).round()
    ledger = held(asked.options, where, groups, tokens)
    room, each = ledger.cache_room_bytes, np.maximum(ledger.cache_bytes, 1.0)
    if np.max(room) <= 0 or ledger.total_bytes.min() - each.min() > ledger.capacity_bytes:
        return WEIGHTS
    if room.flat[-1] < each[1]:
        return ONE_REQUEST
    sequences = ledger.policy.sequences * groups
    return Candidate(
        where,
        weight_dtype,
        int(room.flat[0] // each[0]) * groups,
        ledger.policy.token_budget,
        sequences,
    )


def held(options: Options, where: Setup, batch: float, context: Array) -> Memory:
    """The ledger of a set-up, with its draft and without the experts kept elsewhere."""
    ledger = memory(where.costed(Workload.decode(batch, context)), where.device)
    extra = []
    if options.speculation is not None:
        size = draft_bytes(where, options.speculation)
        reason = f"weights of the draft ({options.speculation.draft})"
        extra.append(Line("draft", np.asarray(size), "computed", reason))
    if options.offload:
        away = options.offload * _expert_bytes(where)
        extra.append(Line(OFFLOADED, np.asarray(-away), "computed", "read over PCIe"))
    return replace(ledger, lines=(*ledger.lines, *extra)) if extra else ledger


def _expert_bytes(where: Setup) -> float:
    """Routed experts' bytes of one rank, all of its layers."""
    ranks = where.parallelism
    spread = ranks.tensor * ranks.data * ranks.pipeline
    layers = where.architecture.counted_layers()
    return sum(count * layer.experts.bytes for layer, count in layers if layer.experts) / spread
