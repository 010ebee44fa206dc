"""How a decode step is issued: operator by operator, compiled, or as one replayed CUDA graph.

A compiled or captured step keeps one shape while the cache grows, so it reads a fixed span of the cache
under a mask (`Decoder.step_masked`). The span is a few tokens more than the context asked for.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import cycle
from typing import Final, Literal

import torch
from torch import Tensor

from roofcast.calibrate.clock import Call
from roofcast.calibrate.decoder import Decoder
from roofcast.calibrate.kv_cache import Cache
from roofcast.calibrate.sampling import greedy
from roofcast.hardware.errors import InputError

Mode = Literal["eager", "compiled", "graph"]

ROOM: Final = 16
"""Steps before the cache is rewound, so that the context stays within a few tokens."""

_WARM_UPS = 3  # steps before a capture, as torch asks for
_COMPILERS = ("g++", "clang++", "c++", "cl")


def require_mode(mode: str, device: torch.device) -> None:
    """InputError where this device or machine cannot issue steps that way."""
    if mode == "graph" and device.type != "cuda":
        raise InputError(f"mode graph replays CUDA graphs; {device.type} has none")
    if mode == "compiled" and device.type == "cpu" and not any(map(shutil.which, _COMPILERS)):
        raise InputError("mode compiled needs a C++ compiler on a CPU, e.g. g++; none was found")


def stepper(decoder: Decoder, cache: Cache, context: int, mode: str = "eager") -> Call:
    """One decode step a call, greedy sampling included; the cache is rewound when it is full.

    The tokens fed are random, not those sampled: a model of random weights repeats itself, and its
    routing with it.
    """
    make = {"eager": _eager, "compiled": _compiled, "graph": _graph}[mode]
    return make(decoder, cache, context, _random_tokens(decoder, cache.batch))


def _random_tokens(decoder: Decoder, batch: int) -> Iterator[Tensor]:
    vocabulary = decoder.architecture.vocab_size
    return cycle(torch.randint(vocabulary, (ROOM, batch), device=decoder.device))


def _eager(decoder: Decoder, cache: Cache, context: int, tokens: Iterator[Tensor]) -> Call:
    def step() -> None:
        if cache.length == cache.capacity:
            cache.rewind(context)
        greedy(decoder.step(next(tokens), cache))

    return step


def _compiled(decoder: Decoder, cache: Cache, context: int, tokens: Iterator[Tensor]) -> Call:
    run = torch.compile(_masked_step, dynamic=True)
    taken = 0

    def step() -> None:
        nonlocal taken
        if taken == ROOM:
            cache.rewind(context)
            taken = 0
        taken += 1
        with torch.inference_mode():
            run(decoder, next(tokens), cache, cache.capacity)

    return step


def _masked_step(decoder: Decoder, tokens: Tensor, cache: Cache, span: int) -> Tensor:
    return greedy(decoder.step_masked(tokens, cache, span))


def _graph(decoder: Decoder, cache: Cache, context: int, tokens: Iterator[Tensor]) -> Call:
    fed = next(tokens).clone()
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.inference_mode(), torch.cuda.stream(aside):
        for _ in range(_WARM_UPS):
            _masked_step(decoder, fed, cache, cache.capacity)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        _masked_step(decoder, fed, cache, cache.capacity)
    cache.rewind(context)
    taken = 0

    def step() -> None:
        nonlocal taken
        if taken == ROOM:
            cache.rewind(context)
            taken = 0
        taken += 1
        fed.copy_(next(tokens))
        graph.replay()

    return step
