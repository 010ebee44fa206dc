"""Micro-benchmarks: one kernel at a time, on cold data, the way the decoder calls it.

Each function makes a call that can be timed again and again; every time it takes the next piece of the
arena. What the calls move and compute is counted in `counted`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from roofcast.calibrate.bench import DTYPES, Bench
from roofcast.calibrate.clock import Call
from roofcast.calibrate.samples import Task


def prepare(task: Task, bench: Bench) -> Call:
    """The call that runs a task once; MemoryError or torch's out-of-memory where it can't."""
    return _KERNELS[task.kind](task, bench)


def _read(task: Task, bench: Bench) -> Call:
    """Sum of a buffer: every byte read once, nothing written."""
    pieces = bench.arena.rotation((task.whole("bytes") // 4,), torch.float32)
    return lambda: next(pieces).sum()


def _copy(task: Task, bench: Bench) -> Call:
    """One half of a buffer copied to the other: half the bytes read, half written."""
    pieces = bench.arena.rotation((2, task.whole("bytes") // 8), torch.float32)

    def call() -> None:
        source, target = next(pieces)
        target.copy_(source)

    return call


def _gemm(task: Task, bench: Bench) -> Call:
    dtype = DTYPES[task.text("dtype")]
    outputs, inputs = task.whole("outputs"), task.whole("inputs")
    weights = bench.arena.rotation((outputs, inputs), dtype)
    rows = _random(bench, (task.whole("rows"), inputs), dtype)
    return lambda: F.linear(rows, next(weights))


def _attention(task: Task, bench: Bench) -> Call:
    dtype = DTYPES[task.text("dtype")]
    batch, heads, dim = task.whole("batch"), task.whole("kv_heads"), task.whole("head_dim")
    length = min(task.whole("context") + 1, task.whole("window") or 2**62)
    caches = bench.arena.rotation((2, batch, heads, length, dim), dtype)
    query = _random(bench, (batch, task.whole("query_heads"), 1, dim), dtype)

    def call() -> None:
        keys, values = next(caches)
        F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

    return call


def _norm(task: Task, bench: Bench) -> Call:
    dtype, width = DTYPES[task.text("dtype")], task.whole("width")
    stream = _random(bench, (task.whole("rows"), width), dtype)
    update = _random(bench, (task.whole("rows"), width), dtype)
    scale = torch.ones(width, dtype=dtype, device=bench.device)

    def call() -> None:
        for _ in range(2):
            F.rms_norm(stream + update, (width,), scale)

    return call


def _activation(task: Task, bench: Bench) -> Call:
    dtype = DTYPES[task.text("dtype")]
    gate_up = _random(bench, (task.whole("rows"), 2 * task.whole("width")), dtype)

    def call() -> None:
        gate, up = gate_up.chunk(2, -1)
        F.silu(gate).mul_(up)

    return call


def _sampler(task: Task, bench: Bench) -> Call:
    shape = (task.whole("batch"), task.whole("vocabulary"))
    logits = _random(bench, shape, DTYPES[task.text("dtype")])
    return lambda: logits.argmax(-1)


def _random(bench: Bench, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device=bench.device).to(dtype)


_KERNELS: Mapping[str, Callable[[Task, Bench], Call]] = {
    "read": _read,
    "copy": _copy,
    "reference": _read,
    "gemm": _gemm,
    "attention": _attention,
    "norm": _norm,
    "activation": _activation,
    "sampler": _sampler,
}
