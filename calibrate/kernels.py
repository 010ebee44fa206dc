"""Micro-benchmarks: one kernel at a time, on cold data, through the decoder's own modules.

Each function makes a call that can be timed again and again; every time it takes the next piece of a
working set several times the last-level cache. What the calls move and compute is counted in
`counted`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle

import torch

from roofcast.calibrate.attention import attend
from roofcast.calibrate.bench import Bench
from roofcast.calibrate.blocks import Norm
from roofcast.calibrate.clock import Call
from roofcast.calibrate.decoder import DTYPES
from roofcast.calibrate.linear import Linear, can_pack
from roofcast.calibrate.mlp import Activation, GroupedExperts, LoopedExperts, can_group
from roofcast.calibrate.samples import Task
from roofcast.calibrate.sampling import greedy

_ROUTINGS = 64  # different draws of experts, so that their mean is the expected one
_SLACK = 16  # entries of a store beyond those attended to, as in a decoder


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
    matrices = cycle(_linears(bench, outputs, inputs, dtype))
    rows = _random(bench, (task.whole("rows"), inputs), dtype)
    return lambda: next(matrices)(rows)


def _linears(bench: Bench, outputs: int, inputs: int, dtype: torch.dtype) -> list[Linear]:
    """Matrices of one shape, together as large as the arena.

    Unpacked ones are pieces of the arena itself. Packed ones need memory of their own, so the bench
    keeps those of the last shape only.
    """
    pieces = bench.arena.pieces((outputs, inputs), dtype)
    if not can_pack(bench.device, dtype):
        return [Linear(piece) for piece in pieces]
    key = f"{outputs} x {inputs} {dtype}"
    if key not in bench.packed:
        bench.packed.clear()
        bench.packed[key] = [Linear(piece, packed=True) for piece in pieces]
    return bench.packed[key]


def _attention(task: Task, bench: Bench) -> Call:
    dtype = DTYPES[task.text("dtype")]
    batch, heads, dim = task.whole("batch"), task.whole("kv_heads"), task.whole("head_dim")
    window = task.whole("window")
    entries = task.whole("context") + 1
    entries = min(entries, window) if window else entries
    caches = bench.arena.rotation((2, batch, heads, entries + _SLACK, dim), dtype)
    query = _random(bench, (batch, heads, task.whole("query_heads") // heads, dim), dtype)

    def call() -> None:
        keys, values = next(caches).narrow(3, 0, entries)
        attend(query, keys, values, None, dim**-0.5)

    return call


def _norm(task: Task, bench: Bench) -> Call:
    """The residual add and the norm, twice: what one layer does."""
    dtype, width = DTYPES[task.text("dtype")], task.whole("width")
    stream = _random(bench, (task.whole("rows"), width), dtype)
    update = _random(bench, (task.whole("rows"), width), dtype)
    ones = torch.ones(width, dtype=dtype, device=bench.device)
    norm = Norm(ones, None, 1e-6, width, centred=False)

    def call() -> None:
        for _ in range(2):
            norm(stream + update)

    return call


def _activation(task: Task, bench: Bench) -> Call:
    dtype = DTYPES[task.text("dtype")]
    gate_up = _random(bench, (task.whole("rows"), 2 * task.whole("width")), dtype)
    return partial(Activation("silu", gated=True), gate_up)


def _sampler(task: Task, bench: Bench) -> Call:
    shape = (task.whole("batch"), task.whole("vocabulary"))
    return partial(greedy, _random(bench, shape, DTYPES[task.text("dtype")]))


def _experts(task: Task, bench: Bench) -> Call:
    """The products of sorted tokens with the experts that uniform routing picks."""
    dtype, tokens = DTYPES[task.text("dtype")], task.whole("rows")
    count, top_k = task.whole("count"), task.whole("top_k")
    layers = cycle(_expert_layers(task, bench, dtype))
    x = _random(bench, (tokens * top_k, task.whole("hidden")), dtype)
    counts = cycle([_routed(tokens, count, top_k).to(bench.device) for _ in range(_ROUTINGS)])
    return lambda: next(layers)(x, next(counts))


def _routed(tokens: int, count: int, top_k: int) -> torch.Tensor:
    """How many tokens each expert gets where each token picks `top_k` different ones at random."""
    picks = torch.stack([torch.randperm(count)[:top_k] for _ in range(tokens)])
    return torch.bincount(picks.flatten(), minlength=count)


def _expert_layers(task: Task, bench: Bench, dtype: torch.dtype) -> list[torch.nn.Module]:
    """Layers of experts, together as large as the arena; packed ones are kept like matrices."""
    count, hidden, width = (task.whole(name) for name in ("count", "hidden", "width"))
    activation = Activation("silu", gated=True)
    key = f"{count} experts of {hidden} x {width} {dtype}"
    if key in bench.packed:
        return bench.packed[key]
    bench.packed.clear()
    layers: list[torch.nn.Module] = []
    for piece in bench.arena.pieces((count, 3 * width * hidden), dtype):
        ups = piece[:, : 2 * width * hidden].reshape(count, 2 * width, hidden)
        downs = piece[:, 2 * width * hidden :].reshape(count, hidden, width)
        if can_group(bench.device, dtype):
            layers.append(GroupedExperts(ups, downs, activation))
        else:
            packed = can_pack(bench.device, dtype)
            layers.append(
                LoopedExperts(
                    [Linear(up, packed=packed) for up in ups],
                    [Linear(down, packed=packed) for down in downs],
                    activation,
                )
            )
    bench.packed[key] = layers
    return layers


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
    "experts": _experts,
}
