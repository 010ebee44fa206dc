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

from roofcast.calibrate.arena import COLD_FACTOR
from roofcast.calibrate.bench import Bench
from roofcast.calibrate.blocks import Attention, Heads, Norm, Step
from roofcast.calibrate.clock import Call
from roofcast.calibrate.counted import operators_of
from roofcast.calibrate.decoder import DTYPES
from roofcast.calibrate.kv_cache import Cache, Exact, Masked, Shape, Slots
from roofcast.calibrate.linear import Linear, can_pack
from roofcast.calibrate.mlp import Activation, GroupedExperts, LoopedExperts, Moe, can_group
from roofcast.calibrate.samples import Task
from roofcast.calibrate.sampling import greedy

_ROUTINGS = 64  # different draws of experts, so that their mean is the expected one
_SLACK = 16  # entries of a store beyond those attended to, as in a decoder


def prepare(task: Task, bench: Bench) -> Call:
    """The call that runs a task once; MemoryError or torch's out-of-memory where it can't."""
    return _KERNELS[task.kind](task, bench)


def wake(task: Task, bench: Bench) -> Call | None:
    """What runs before each timed call of a kernel: a stream of weights, as in a decode step.

    In a loop of its own a kernel finds its code and descriptors in the processor's inner caches; behind
    a product with another matrix they are gone. On a CPU that costs some 60 us a call: small kernels
    take several times as long, and a product with half a megabyte twice as long.
    """
    if task.kind not in _IN_THE_WAKE or bench.device.type != "cpu":
        return None
    pieces = bench.arena.rotation((_STREAM_BYTES // 2 // 1024, 1024), torch.bfloat16)
    rows = torch.ones((1, 1024), dtype=torch.bfloat16)
    if bench.dtype != "bf16":
        return lambda: next(pieces).view(torch.float32).sum()
    return lambda: torch.nn.functional.linear(rows, next(pieces))


_IN_THE_WAKE = ("gemm", "experts", "attention", "norm", "activation", "sampler")
_STREAM_BYTES = 8 << 20  # a few times the inner caches of two cores


def _read(task: Task, bench: Bench) -> Call:
    """Sum of a buffer: every byte read once, nothing written."""
    pieces = bench.arena.rotation((task.whole("bytes") // 4,), torch.float32)
    return lambda: next(pieces).sum()


def _reference(task: Task, bench: Bench) -> Call:
    """As `read`, over twice the last-level cache, all of it read once beforehand.

    A hypervisor may take pages away that rested; reading those again is many times slower, and says
    how long they rested rather than how fast the machine is.
    """
    size = task.whole("bytes")
    count = max(bench.arena.wanted // COLD_FACTOR * 2 // size, 4)
    pieces = bench.arena.pieces((size // 4,), torch.float32)[:count]
    for piece in pieces:
        piece.sum()
    turns = cycle(pieces)
    return lambda: next(turns).sum()


def _copy(task: Task, bench: Bench) -> Call:
    """One half of a buffer copied to the other: half the bytes read, half written."""
    pieces = bench.arena.rotation((2, task.whole("bytes") // 8), torch.float32)

    def call() -> None:
        source, target = next(pieces)
        target.copy_(source)

    return call


def _gemm(task: Task, bench: Bench) -> Call:
    if task.text("dtype") in _QUANTISED:
        return _QUANTISED[task.text("dtype")](task, bench)
    dtype = DTYPES[task.text("dtype")]
    outputs, inputs = task.whole("outputs"), task.whole("inputs")
    packed = bool(task.facts.get("packed", can_pack(bench.device, dtype)))
    matrices = cycle(_linears(bench, (outputs, inputs), dtype, packed))
    rows = _random(bench, (task.whole("rows"), inputs), dtype)
    return lambda: next(matrices)(rows)


def _fp8_gemm(task: Task, bench: Bench) -> Call:
    """e4m3 times e4m3 with a scale each, bf16 out."""
    kind = torch.float8_e4m3fn
    outputs, inputs = task.whole("outputs"), task.whole("inputs")
    weights = cycle([piece.t() for piece in bench.arena.pieces((outputs, inputs), kind)])
    rows = _random(bench, (task.whole("rows"), inputs), torch.bfloat16).to(kind)
    one = torch.ones((), device=bench.device)
    return lambda: torch._scaled_mm(rows, next(weights), one, one, out_dtype=torch.bfloat16)


def _int8_gemm(task: Task, bench: Bench) -> Call:
    """int8 times int8, int32 out."""
    outputs, inputs = task.whole("outputs"), task.whole("inputs")
    weights = cycle([piece.t() for piece in bench.arena.pieces((outputs, inputs), torch.int8)])
    shape = (task.whole("rows"), inputs)
    rows = torch.randint(-100, 100, shape, dtype=torch.int8, device=bench.device)
    return lambda: torch._int_mm(rows, next(weights))


_QUANTISED: Mapping[str, Callable[[Task, Bench], Call]] = {"fp8": _fp8_gemm, "int8": _int8_gemm}


def may_lack(task: Task) -> bool:
    """Whether torch may have no such kernel on this device, or not for these sizes."""
    return task.facts.get("dtype") in _QUANTISED


def _linears(
    bench: Bench, shape: tuple[int, int], dtype: torch.dtype, packed: bool
) -> list[Linear]:
    """Matrices of one shape, together as large as the arena.

    Unpacked ones are pieces of the arena itself. Packed ones need memory of their own, so the bench
    keeps those of the last shape only.
    """
    pieces = bench.arena.pieces(shape, dtype)
    if not packed:
        return [Linear(piece) for piece in pieces]
    key = f"{shape} {dtype}"
    if key not in bench.packed:
        bench.packed.clear()
        bench.packed[key] = [Linear(piece, packed=True) for piece in pieces]
    return bench.packed[key]


class _Past(Linear):
    """Stands where a matrix product is measured apart."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input itself."""
        return x


def _attention(task: Task, bench: Bench) -> Call:
    """From queries, keys and values to the mixed heads: rotation, append, attention over the cache."""
    dtype = DTYPES[task.text("dtype")]
    batch, heads, dim = task.whole("batch"), task.whole("kv_heads"), task.whole("head_dim")
    queries, window = task.whole("query_heads"), task.whole("window") or None
    context = task.whole("context")
    shape = Shape(heads, dim, window)
    size = shape.size(context + _SLACK)
    stores = bench.arena.pieces((2, batch, heads, size, dim), dtype)
    cache = Cache((), batch, 1, device=bench.device, dtype=dtype)
    cache.keys = tuple(store[0] for store in stores)
    cache.values = tuple(store[1] for store in stores)
    turn = _random(bench, (2, 1, 1, dim), dtype)
    slots = (_slots(task, bench, size),) * len(stores)
    step = Step(cache, slots, 1, rotations=((turn[0], turn[1]),))
    past = _Past(torch.empty(1, 1))
    sizes = Heads(queries, heads, dim, dim**-0.5, window, rotation=0)
    attention = Attention(0, sizes, past, past, None)
    qkv = _random(bench, (batch, (queries + 2 * heads) * dim), dtype)
    layers = cycle(range(len(stores)))

    def call() -> None:
        attention.index = next(layers)
        attention(qkv, step)

    return call


def _slots(task: Task, bench: Bench, size: int) -> Slots:
    """Where the new token goes and what is read: as many entries as there are, or all under a mask."""
    context = task.whole("context")
    if not task.facts.get("masked"):
        return Exact(context, 1, size)
    position = torch.tensor([context], device=bench.device)
    return Masked(position % size, size, torch.arange(size, device=bench.device) <= position)


def _norm(task: Task, bench: Bench) -> Call:
    """The residual add and the norm, as often as the operator counts them."""
    dtype, width = DTYPES[task.text("dtype")], task.whole("width")
    stream = _random(bench, (task.whole("rows"), width), dtype)
    update = _random(bench, (task.whole("rows"), width), dtype)
    ones = torch.ones(width, dtype=dtype, device=bench.device)
    norm = Norm(ones, None, 1e-6, width, centred=False)
    (operator,) = operators_of([task])
    times = round(operator.launches)

    def call() -> None:
        for _ in range(times):
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
    """A whole block of routed experts: router, choice, sorting, products, weighted sum."""
    dtype = DTYPES[task.text("dtype")]
    blocks = cycle(_expert_blocks(task, bench, dtype))
    shape = (_ROUTINGS, task.whole("rows"), task.whole("hidden"))
    inputs = cycle(_random(bench, shape, dtype))
    return lambda: next(blocks)(next(inputs))


def _expert_blocks(task: Task, bench: Bench, dtype: torch.dtype) -> list[Moe]:
    """Blocks of experts, together as large as the arena; those of the last shape are kept."""
    count, hidden, width = (task.whole(name) for name in ("count", "hidden", "width"))
    top_k = task.whole("top_k")
    packed = bool(task.facts.get("packed", can_pack(bench.device, dtype)))
    key = f"{top_k} of {count} experts of {hidden} x {width} {dtype} {packed}"
    if key not in bench.packed:
        bench.packed.clear()
        router = Linear(_random(bench, (count, hidden), dtype))
        pieces = bench.arena.pieces((count, 3 * width * hidden), dtype)
        bench.packed[key] = [
            Moe(router, _routed(piece, hidden, width, packed), top_k, normalise=True)
            for piece in pieces
        ]
    return bench.packed[key]


def _routed(piece: torch.Tensor, hidden: int, width: int, packed: bool) -> torch.nn.Module:
    """The experts of one block, in the form the decoder gives them on this device."""
    count, activation = piece.shape[0], Activation("silu", gated=True)
    ups = piece[:, : 2 * width * hidden].reshape(count, 2 * width, hidden)
    downs = piece[:, 2 * width * hidden :].reshape(count, hidden, width)
    if can_group(piece.device, piece.dtype):
        return GroupedExperts(ups, downs, activation)
    return LoopedExperts(
        [Linear(up, packed=packed) for up in ups],
        [Linear(down, packed=packed) for down in downs],
        activation,
    )


def _random(bench: Bench, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device=bench.device).to(dtype)


_KERNELS: Mapping[str, Callable[[Task, Bench], Call]] = {
    "read": _read,
    "copy": _copy,
    "reference": _reference,
    "gemm": _gemm,
    "attention": _attention,
    "norm": _norm,
    "activation": _activation,
    "sampler": _sampler,
    "experts": _experts,
}
