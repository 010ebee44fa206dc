"""What a calibration measures: kernels, decode runs, their order and the effort spent on each.

The order is random, from a seed kept with the plan, so that a slow drift of the machine can't pass for
an effect of size, batch or context. A plan is a value: the same device and seed give the same plan,
which is what lets an interrupted calibration go on.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from roofcast.calibrate.clock import Effort
from roofcast.calibrate.samples import Task
from roofcast.calibrate.shapes import Scale, Shape, shapes
from roofcast.hardware.accelerator import Accelerator
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.memory import rank_cache_bytes, rank_weight_bytes
from roofcast.simulator.passes import Pass
from roofcast.simulator.workload import Workload

LARGE_MEMORY_BYTES = 30e9
"""A GPU with at least so much runs the large shapes."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the plan is made for. `memory_bytes` is what may be used, not what is built in."""

    device: Accelerator
    dtype: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    ranks: int = 1
    """Processes that can work as one group: GPUs of this machine, or two halves of its CPU."""

    @property
    def scale(self) -> Scale:
        """Which model shapes suit it."""
        large = self.device.kind != "cpu" and self.memory_bytes >= LARGE_MEMORY_BYTES
        return "large" if large else "small"


@dataclass(frozen=True)
class Plan:
    """Kernels and decode runs in the order to measure them; efforts are those of one visit."""

    name: str
    seed: int
    mode: str
    kernels: tuple[Task, ...]
    runs: tuple[Task, ...]
    ranks: tuple[Task, ...]
    kernel_effort: Effort
    run_effort: Effort
    run_visits: int
    budget_s: float

    @property
    def identity(self) -> str:
        """Name, seed and a digest of the tasks: equal for equal plans only."""
        text = "\n".join(task.key for task in (*self.kernels, *self.runs, *self.ranks))
        return (
            f"{self.name}-{self.mode}-{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        )


REFERENCE = "reference"
"""Kind of the kernel that is measured again and again, to see the machine drift."""


def make_plan(target: Target, *, quick: bool, mode: str = "eager", seed: int = 0) -> Plan:
    """The plan of a quick calibration (three minutes on two cores) or a full one (fifteen).

    `mode` is how decode steps are issued (see modes); it also decides which kernels they run.
    """
    order = random.Random(seed)
    kernels = _shuffled([_as_run(task, mode, target) for task in _kernels(target, quick)], order)
    runs = _runs(target, quick, mode, order)
    return Plan(
        name="quick" if quick else "full",
        seed=seed,
        mode=mode,
        kernels=tuple(kernels),
        runs=tuple(runs),
        ranks=() if quick else tuple(_between_ranks(target)),
        kernel_effort=Effort(budget_s=0.15 if quick else 0.3, interval=0.02),
        run_effort=Effort(budget_s=1.0 if quick else 1.3, interval=0.02, least=7, most=60),
        run_visits=2 if quick else 3,
        budget_s=170.0 if quick else 870.0,
    )


def _as_run(task: Task, mode: str, target: Target) -> Task:
    """A kernel task as that mode runs the kernel: under a mask, from unpacked weights."""
    facts = dict(task.facts)
    if mode != "eager" and task.kind == "attention":
        facts["masked"] = True
    if mode == "compiled" and task.kind in ("gemm", "experts") and target.device.kind == "cpu":
        facts["packed"] = False
    return Task(task.kind, facts)


def _shuffled(tasks: list[Task], order: random.Random) -> list[Task]:
    """Random order, but matrices of one shape stay together: packing them takes a while."""
    groups: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        facts = task.facts
        own = facts if task.kind not in ("gemm", "experts") else {**facts, "rows": 0}
        groups.setdefault((task.kind, *own.values()), []).append(task)
    blocks = list(groups.values())
    order.shuffle(blocks)
    for block in blocks:
        order.shuffle(block)
    return [task for block in blocks for task in block]


# ---- kernels ------------------------------------------------------------------------------------

_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_ROWS_QUICK = (1, 2, 4, 8, 16, 32, 64, 128)
_PREFILL_ROWS = (512, 1024, 2048)

# Outputs x inputs of matrices that decode multiplies: projections, MLP halves and heads.
_MATRICES: dict[Scale, tuple[tuple[int, int], ...]] = {
    "small": ((768, 576), (960, 960), (2048, 2048), (5632, 1024), (1024, 2816), (11264, 2048),
              (2048, 8192), (49152, 768), (128256, 1024)),
    "large": ((2048, 2048), (6144, 4096), (4096, 4096), (22016, 2048), (2048, 11008),
              (28672, 4096), (4096, 14336), (32000, 2560), (128256, 4096)),
}  # fmt: skip
_MATRICES_QUICK: dict[Scale, tuple[tuple[int, int], ...]] = {
    "small": ((960, 960), (5632, 1024), (2048, 5632), (49152, 768)),
    "large": ((6144, 4096), (22016, 2048), (4096, 14336), (128256, 4096)),
}


def _kernels(target: Target, quick: bool) -> Iterator[Task]:
    yield from _bandwidths(target, quick)
    for dtype in _dtypes(target, quick):
        yield from _gemms(target, dtype, quick or dtype != target.dtype)
    yield from _attentions(target, quick)
    yield from _small_kernels(target, quick)


def _dtypes(target: Target, quick: bool) -> tuple[str, ...]:
    """The main dtype first; a full calibration measures what else the device may multiply in."""
    if quick:
        return (target.dtype,)
    others = ("fp32", "int8") if target.device.kind == "cpu" else ("fp16", "fp32", "int8", "fp8")
    return tuple(dict.fromkeys((target.dtype, *others)))


def _bandwidths(target: Target, quick: bool) -> Iterator[Task]:
    largest = int(min(2**30, target.memory_bytes / 12))
    sizes = [largest >> shift for shift in (range(0, 2) if quick else range(0, 12, 2))]
    for size in sizes:
        yield Task("read", {"bytes": size})
        yield Task("copy", {"bytes": size})


def _gemms(target: Target, dtype: str, quick: bool) -> Iterator[Task]:
    scale = target.scale
    for outputs, inputs in (_MATRICES_QUICK if quick else _MATRICES)[scale]:
        for rows in _ROWS_QUICK if quick else _ROWS:
            yield gemm_task(rows, outputs, inputs, dtype)
    for rows in _PREFILL_ROWS[:1] if quick else _PREFILL_ROWS:
        for outputs, inputs in _MATRICES_QUICK[scale][:3]:
            yield gemm_task(rows, outputs, inputs, dtype)


def gemm_task(rows: int, outputs: int, inputs: int, dtype: str) -> Task:
    """A matrix product of `rows` tokens with one weight."""
    return Task("gemm", {"rows": rows, "outputs": outputs, "inputs": inputs, "dtype": dtype})


_HEADS = ((9, 3, 64, 0), (12, 12, 64, 0), (14, 2, 64, 0), (16, 8, 128, 0), (16, 4, 64, 512))
_HEADS_LARGE = ((32, 8, 64, 0), (32, 32, 80, 0), (16, 2, 128, 0), (32, 8, 128, 0),
                (24, 8, 128, 4096))  # fmt: skip


def _attentions(target: Target, quick: bool) -> Iterator[Task]:
    small = target.scale == "small"
    heads = _HEADS if small else _HEADS_LARGE
    batches: tuple[int, ...] = (1, 8) if quick else (1, 2, 8, 32)
    contexts: tuple[int, ...] = (128, 1024) if quick else (32, 128, 512, 2048)
    if not small:
        contexts = tuple(context * 8 for context in contexts)
    for query_heads, kv_heads, head_dim, window in heads[1:4] if quick else heads:
        for batch in batches:
            for context in contexts:
                if batch * context * kv_heads * head_dim * 4 < target.memory_bytes / 20:
                    yield Task("attention", {
                        "batch": batch, "context": context, "query_heads": query_heads,
                        "kv_heads": kv_heads, "head_dim": head_dim, "window": window,
                        "dtype": target.dtype,
                    })  # fmt: skip


def _small_kernels(target: Target, quick: bool) -> Iterator[Task]:
    rows = (1, 8, 64) if quick else (1, 2, 4, 8, 16, 32, 64, 128, 256)
    widths = (768, 2048) if quick else (576, 1024, 2048, 4096)
    vocabularies = (32000, 128256) if quick else (16384, 49152, 128256)
    for count in rows:
        for width in widths:
            yield Task("norm", {"rows": count, "width": width, "dtype": target.dtype})
            yield Task("activation", {"rows": count, "width": 3 * width, "dtype": target.dtype})
        for vocabulary in vocabularies:
            yield Task("sampler", {"batch": count, "vocabulary": vocabulary, "dtype": target.dtype})
    if not quick:
        for count, top_k, hidden, width in ((8, 2, 768, 1408), (32, 4, 896, 448)):
            for tokens in (1, 2, 4, 8, 16, 32, 64):
                yield Task("experts", {
                    "rows": tokens, "count": count, "top_k": top_k, "hidden": hidden,
                    "width": width, "dtype": target.dtype,
                })  # fmt: skip


# ---- decode runs --------------------------------------------------------------------------------

_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_CONTEXTS = (32, 128, 256, 512, 1024, 2048, 4096, 8192)
_CONTEXTS_LARGE = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_CORNERS = ((1, 128), (1, 1024), (8, 512), (32, 128))
_LONGEST_STEP_S = 0.6
_MEMORY_SHARE = 0.35  # of what may be used: weights and cache of one run


def _runs(target: Target, quick: bool, mode: str, order: random.Random) -> list[Task]:
    """Points of every shape: the same four corners, then others at random from those that fit."""
    name = "quick" if quick else "full"
    chosen = [shape for shape in shapes(target.scale).values() if name in shape.plans]
    found: list[Task] = []
    for shape in chosen:
        points = _points(target, shape)
        corners = [point for point in _CORNERS if point in points]
        rest = [point for point in points if point not in corners]
        wanted = (5 if quick else 13 if shape.held_out else 10) - len(corners)
        found += [
            run_task(shape, batch, context, target.dtype, mode)
            for batch, context in [*corners, *order.sample(rest, min(max(wanted, 0), len(rest)))]
        ]
    order.shuffle(found)
    return found


def run_task(shape: Shape, batch: int, context: int, dtype: str, mode: str = "eager") -> Task:
    """Decode steps of a shape at one batch and context."""
    return Task("decode", {
        "shape": shape.name, "batch": batch, "context": context, "dtype": dtype, "mode": mode,
    })  # fmt: skip


def _points(target: Target, shape: Shape) -> list[tuple[int, int]]:
    """Batches and contexts that fit in memory and in patience."""
    architecture = shape.architecture(target.dtype)
    contexts = _CONTEXTS if target.scale == "small" else _CONTEXTS_LARGE
    points = []
    for batch in _BATCHES:
        for context in contexts:
            work = Pass(architecture, Workload.decode(batch, context), kv_dtype=target.dtype)
            weights = rank_weight_bytes(work)
            cache = batch * float(rank_cache_bytes(work, np.asarray(float(context))))
            fits = weights + cache <= _MEMORY_SHARE * target.memory_bytes
            step_s = (weights + 2 * cache) / (0.5 * target.bandwidth_bytes_per_s)
            step_s *= max(1.0, batch / 32)
            if fits and step_s <= _LONGEST_STEP_S:
                points.append((batch, context))
    return points


# ---- several ranks ------------------------------------------------------------------------------

_LARGEST_MESSAGE_BYTES = 64 << 20


def _between_ranks(target: Target) -> Iterator[Task]:
    """Collectives by size, and tensor-parallel decode of one shape, for 2, 4, 8 ... ranks."""
    ranks = 2
    while ranks <= target.ranks:
        yield from collective_tasks(ranks, target.dtype)
        yield from sharded_tasks(ranks, target.dtype, _shared(target, ranks)[:1])
        ranks *= 2


def _shared(target: Target, ranks: int) -> list[Shape]:
    """Shapes of a quick calibration whose heads so many ranks can share evenly."""
    quick = [shape for shape in shapes(target.scale).values() if "quick" in shape.plans]
    return [shape for shape in quick if _divides(shape.architecture(target.dtype), ranks)]


def _divides(architecture: Architecture, ranks: int) -> bool:
    pieces = {weight.pieces for layer in architecture.layers for weight in layer.weights}
    return all(count % ranks == 0 or ranks % count == 0 for count in pieces)


def collective_tasks(
    ranks: int, dtype: str, largest_bytes: int = _LARGEST_MESSAGE_BYTES
) -> Iterator[Task]:
    """Sums and gathers over `ranks`, from one hidden vector to what a long prompt needs."""
    for kind in ("all_reduce", "all_gather"):
        size = 4 << 10
        while size <= largest_bytes:
            yield Task(kind, {"bytes": size, "ranks": ranks, "dtype": dtype})
            size *= 4


def sharded_tasks(ranks: int, dtype: str, chosen: Iterable[Shape]) -> Iterator[Task]:
    """Tensor-parallel decode of some shapes at a few batches."""
    for shape in chosen:
        for batch in (1, 8, 32):
            yield Task("sharded", {
                "shape": shape.name, "batch": batch, "context": 512, "dtype": dtype,
                "ranks": ranks,
            })  # fmt: skip
