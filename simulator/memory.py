"""The memory ledger: what the fullest device of a replica holds, line by line, and whether it fits.

Every line says whether it is computed from the model, measured on a machine, or assumed, and why.
Weights, cache and activations are computed; graphs, buffers and the driver's context are what engines
are seen to take (memory_policies.toml) until a start-up log replaces them (startup_log.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware import links
from roofcast.hardware.accelerator import Accelerator
from roofcast.simulator import kv_pages
from roofcast.simulator.architecture import AttentionCore, Core, StateCore, Weight
from roofcast.simulator.cache import entries_kept, entry_elements
from roofcast.simulator.formats import element_bytes
from roofcast.simulator.memory_policy import Policy, find_policy
from roofcast.simulator.operators import share
from roofcast.simulator.passes import Pass
from roofcast.simulator.stages import stages
from roofcast.simulator.working_memory import activation_bytes, sampling_bytes
from roofcast.simulator.workload import Array

Origin = Literal["computed", "measured", "assumed"]
DRIVER_SHARE = 0.985
"""Share of a GPU's marketed memory that its driver offers, where the spec does not know. Assumed:
0.984 to 0.991 on H100, B200 and RTX 4090."""

SYSTEM_SHARE = 0.90
"""Share of a CPU's memory that is not the system's. Assumed."""

WEIGHTS = ("weights, sharded", "weights, replicated")
CACHE = ("KV cache", "recurrent state")


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of the ledger; arrays broadcast over the points. `inside` the engine's share or not.

    `source` says where an assumed number was seen.
    """

    name: str
    bytes: Array
    origin: Origin
    reason: str
    inside: bool = True
    source: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The ledger of the fullest device of a replica.

    `usable_bytes` is what the lines inside the engine's share may add up to.
    """

    lines: tuple[Line, ...]
    capacity_bytes: float
    usable_bytes: Array
    policy: Policy

    def of(self, *names: str) -> Array:
        """Bytes of the named lines together."""
        return sum((line.bytes for line in self.lines if line.name in names), np.zeros(()))

    @property
    def weight_bytes(self) -> Array:
        """Weights, sharded and replicated."""
        return self.of(*WEIGHTS)

    @property
    def cache_bytes(self) -> Array:
        """Cache and states as allocated."""
        return self.of(*CACHE)

    @property
    def inside_bytes(self) -> Array:
        """What counts within the engine's share."""
        return sum((line.bytes for line in self.lines if line.inside), np.zeros(()))

    @property
    def total_bytes(self) -> Array:
        """Every line, those outside the share included."""
        return sum((line.bytes for line in self.lines), np.zeros(()))

    @property
    def free_bytes(self) -> Array:
        """What the engine's share still holds; negative where it does not fit."""
        return self.usable_bytes - self.inside_bytes

    @property
    def cache_room_bytes(self) -> Array:
        """The largest cache that fits beside everything else."""
        return self.free_bytes + self.cache_bytes

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the share holds its lines, and the device all of them."""
        return np.asarray((self.free_bytes >= 0) & (self.total_bytes <= self.capacity_bytes))


def memory(work: Pass, device: Accelerator) -> Memory:
    """The ledger with the cache of every sequence at context + new tokens.

    A CPU keeps no graphs and shares its memory with the system: it reserves nothing extra.
    """
    policy = find_policy(work.engine, work.launch, device)
    held = _fullest([_stage_lines(stage, policy) for stage in stages(work)])
    known = dict(work.launch.measured)
    lines = _measured((*held, *_overheads(work, device, policy)), known)
    capacity = known.get("capacity", usable_capacity(device))
    rest = sum(
        (line.bytes for line in lines if line.inside and line.name not in CACHE), np.zeros(())
    )
    usable = np.asarray(policy.share * capacity)
    if "cache room" in known:
        usable = rest + known["cache room"]
    elif policy.of == "remaining":
        usable = rest + policy.share * np.maximum(capacity - rest, 0.0)
    return Memory(lines, capacity, usable, policy)


def usable_capacity(device: Accelerator) -> float:
    """What programs can allocate: as the driver reports it, else most of what is marketed."""
    if device.kind == "cpu":
        return SYSTEM_SHARE * device.memory_bytes
    if device.memory_usable_bytes is not None or device.kind != "gpu":
        return float(device.memory_bytes)
    return DRIVER_SHARE * device.memory_bytes


def _stage_lines(work: Pass, policy: Policy) -> tuple[Line, ...]:
    """Weights and cache of one pipeline stage's rank, and its working memory."""
    sharded, replicated = rank_weights(work)
    layers = rank_kinds(work)
    cache, state = _cache(work, layers, policy)
    ranks = work.parallelism
    split = f"TP {ranks.tensor}, EP {ranks.expert}, PP {ranks.pipeline}"
    pages = f"pages of {kv_pages.block_tokens(layers, policy)} tokens"
    how = pages if policy.block_tokens else "one block of exactly its length a sequence"
    kept = f"{work.kv_dtype}, {how}, windows: {policy.windows}"
    return (
        Line(WEIGHTS[0], np.asarray(sharded), "computed", f"tensors cut over ranks: {split}"),
        Line(WEIGHTS[1], np.asarray(replicated), "computed", "tensors every rank holds whole"),
        Line(CACHE[0], cache, "computed", kept),
        Line(CACHE[1], state, "computed", "a state of fixed size a sequence and layer"),
    )


def _cache(
    work: Pass, layers: Mapping[kv_pages.CacheKind, int], policy: Policy
) -> tuple[Array, Array]:
    """Allocated cache and states of all sequences of an attention group."""
    sequences = np.ceil(work.workload.batch / work.parallelism.data)
    tokens = work.workload.context + work.workload.new
    whole = kv_pages.allocated_bytes(layers, tokens, policy)
    if not any(kind.state_bytes for kind in layers):
        return sequences * whole, np.zeros(())
    attending = {kind: count for kind, count in layers.items() if not kind.state_bytes}
    empty = np.zeros_like(tokens)
    alone = kv_pages.allocated_bytes(attending, empty, policy) if attending else 0.0
    own = kv_pages.allocated_bytes(layers, empty, policy) - alone
    return sequences * (whole - own), sequences * own


def rank_kinds(work: Pass) -> Counter[kv_pages.CacheKind]:
    """What each layer of a stage keeps on one tensor rank: at least one KV head, latents whole."""
    tensor = work.parallelism.tensor
    cores: Counter[Core] = Counter()
    shares = [1.0]
    for layer, count in work.architecture.counted_layers():
        for core in layer.cores:
            cores[on_rank(core, tensor)] += count
            if isinstance(core, StateCore):
                shares.append(share(core.pieces, tensor))
    return kv_pages.kinds(cores, element_bytes(work.kv_dtype), min(shares))


def on_rank(core: Core, tensor: int) -> Core:
    """A core as one of `tensor` ranks caches it: KV heads are cut, one each at least.

    >>> on_rank(AttentionCore(64, 8, 128, 128), 16).kv_heads
    1
    """
    if not isinstance(core, AttentionCore):
        return core
    return replace(core, kv_heads=math.ceil(core.kv_heads / tensor))


def _fullest(by_stage: list[tuple[Line, ...]]) -> tuple[Line, ...]:
    """The lines of the stage that holds most, point by point."""
    if len(by_stage) == 1:
        return by_stage[0]
    totals = np.broadcast_arrays(*[sum(line.bytes for line in lines) for lines in by_stage])
    most = np.argmax(np.stack(totals), axis=0)
    picked = []
    for lines in zip(*by_stage, strict=True):
        values = np.stack([np.broadcast_to(line.bytes, most.shape) for line in lines])
        taken = np.take_along_axis(values, most[np.newaxis], axis=0)[0]
        picked.append(replace(lines[0], bytes=taken))
    return tuple(picked)


def _overheads(work: Pass, device: Accelerator, policy: Policy) -> Iterable[Line]:
    """What is neither weights nor cache."""
    working, reserved = activation_bytes(work, policy), policy.token_bytes * policy.token_budget
    budget = f"{policy.token_budget:,} tokens a step"
    if reserved and device.kind != "cpu":
        yield _assumed("activations", reserved, f"reserved for {budget}", policy)
    else:
        reason = f"the largest layer at {budget}"
        yield Line("activations", np.asarray(working), "computed", reason)
    if device.kind == "cpu":
        return
    sampling = max(sampling_bytes(work, policy) - working, 0.0)
    reason = f"sampling {policy.sequences:,} sequences, beyond what activations leave"
    yield _assumed("logits", sampling, reason, policy)
    graphs = policy.graph_bytes + policy.sequence_bytes * policy.sequences
    where = "" if policy.graphs_inside else ", outside the engine's share"
    yield replace(
        _assumed("graphs", graphs, f"captured steps{where}", policy), inside=policy.graphs_inside
    )
    if work.parallelism.devices > 1:
        ranks = work.parallelism.tensor * work.parallelism.data
        linked = links.medium(device, max(ranks, 2)) in ("scale_up", "network")
        buffers = policy.link_bytes if linked else policy.pcie_bytes
        yield _assumed("communication", buffers, "buffers of collectives", policy)
    yield _assumed("context", policy.context_bytes, "driver, kernels, allocator", policy)


def _assumed(name: str, size: float, reason: str, policy: Policy) -> Line:
    return Line(name, np.asarray(size), "assumed", reason, source=policy.source(name))


def _measured(lines: tuple[Line, ...], known: Mapping[str, float]) -> tuple[Line, ...]:
    """The lines with those that a start-up log knows replaced."""
    return tuple(
        replace(
            line,
            bytes=np.asarray(known[line.name]),
            origin="measured",
            reason="start-up log",
            source="",
        )
        if line.name in known
        else line
        for line in lines
    )


def rank_weight_bytes(work: Pass) -> float:
    """Resident weight bytes of the fullest rank: tensors cut into pieces, experts over their ranks."""
    return max(sum(rank_weights(stage)) for stage in stages(work))


def rank_weights(work: Pass) -> tuple[float, float]:
    """Resident weight bytes of one rank of one stage: what is cut, and what every rank holds whole."""
    ranks = work.parallelism
    parts = [_held((*work.architecture.embeddings, *work.architecture.head), ranks.tensor)]
    for layer, count in work.architecture.counted_layers():
        cut, whole = _held(layer.weights, ranks.tensor)
        if layer.experts:
            local = share(layer.experts.count, ranks.expert) * layer.experts.count
            cut += local * sum(_expert_bytes(w, ranks.expert_tensor) for w in layer.experts.weights)
        parts.append((count * cut, count * whole))
    return sum(cut for cut, _ in parts), sum(whole for _, whole in parts)


def _held(weights: Iterable[Weight], ranks: int) -> tuple[float, float]:
    """Bytes of the resident ones of some tensors on one rank: cut, and whole."""
    cut, whole = 0.0, 0.0
    for weight in weights:
        if weight.resident and weight.use != "unused":
            part = share(weight.pieces, ranks)
            if part < 1.0 or ranks == 1:
                cut += weight.bytes * part
            else:
                whole += weight.bytes
    return cut, whole


def _expert_bytes(weight: Weight, ranks: int) -> float:
    return weight.bytes * share(weight.pieces, ranks)


def rank_cache_bytes(work: Pass, context: Array) -> Array:
    """Cache and states of one sequence on one tensor rank, all layers, as few bytes as steps need."""
    cell = element_bytes(work.kv_dtype)
    total = np.zeros_like(context)
    counted = work.architecture.counted_layers()
    for core, count in ((core, count) for layer, count in counted for core in layer.cores):
        held = on_rank(core, work.parallelism.tensor)
        total = total + count * cell * entry_elements(held) * entries_kept(held, context)
        if isinstance(core, StateCore):
            size = core.conv_elements * cell + core.state_elements * core.state_element_bytes
            total = total + count * size * share(core.pieces, work.parallelism.tensor)
    return total
