"""From forecasts to what serving needs: decode steps over batches, prompts, and how many fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from roofcast.hardware.profile import Profile
from roofcast.simulator import prompt_attention
from roofcast.simulator.api import Setup
from roofcast.simulator.memory import memory
from roofcast.simulator.operators import operators
from roofcast.simulator.passes import Operator
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.roofline import OperatorTime, Roofs, operator_time
from roofcast.simulator.serving import Costs, Curve
from roofcast.simulator.workload import Array, Workload

BATCHES: Final = np.array(
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024], dtype=float
)
"""Batches at which a decode step is forecast; between them it is nearly linear."""

LEAST_ROOM: Final = 0.04
"""Share of a device's memory that is left for caches where the ledger finds less. Assumed."""


def costs(where: Setup, context: ArrayLike, prompt: ArrayLike) -> Costs:
    """What each point of equal length takes: decode at a mean `context`, prompts of mean length.

    Lengths are whole tokens, one entry a point. Attention groups read one prompt each at a time.
    """
    contexts, prompts = _column(context), np.asarray(prompt, dtype=np.float64)
    decode = where.decode(BATCHES[np.newaxis, :], contexts)
    groups = where.parallelism.data
    reading = where.prefill(groups, prompts)
    own, weights = prompt_s(reading)
    zero = np.zeros(prompts.shape)
    return Costs(
        decode=Curve(BATCHES, decode.step_time_s),
        shared=Curve(BATCHES, spared_s(where, decode, _column(prompt))),
        prompt_s=(own + zero) / groups,
        weights_s=weights + zero,
        pass_s=reading.host_s + launches_s(reading) + zero,
        request_s=np.asarray(request_s(where.profile, prompts)),
        most=capacity(where, context),
    )


def request_s(profile: Profile, prompt: ArrayLike) -> Array:
    """What a request with a prompt of so many tokens takes outside of any step, on the host."""
    tokens = np.asarray(prompt, dtype=np.float64)
    each = profile.value("host.prompt_token_s", 0.0)
    return np.asarray(profile.value("host.request_s", 0.0) + each * tokens)


def capacity(where: Setup, context: ArrayLike) -> Array:
    """Sequences of so many tokens whose caches fit at once, at least one.

    An engine that has started has some room: never less than `LEAST_ROOM` of the device counts, since
    what the ledger sets aside for graphs and buffers is an estimate.
    """
    tokens = np.asarray(context, dtype=np.float64)
    groups = where.parallelism.data
    ledger = memory(where.costed(Workload.decode(groups, tokens)), where.device)
    each = np.maximum(ledger.cache_bytes, 1.0)
    room = np.maximum(ledger.cache_room_bytes, LEAST_ROOM * ledger.capacity_bytes)
    return np.asarray(np.maximum(np.floor(room / each), 1.0) * groups)


def spared_s(where: Setup, decode: Forecast, prompt: Array) -> Array:
    """What a pass that reads `prompt` tokens spares beside a decode step, the same as `StepTimes`.

    Where prompts were measured in whole steps, what is read and launched once for all. Elsewhere the
    pass is costed: its products over prompt and decoding tokens together in place of both apart, less
    what its attention over the decoding sequences repeats.
    """
    if "prefill.scale" in where.profile.parameters:
        return np.array(np.broadcast_to(shared_s(decode), decode.step_time_s.shape))
    reading = prompt_attention.reading(where.profile, where.device)
    tokens = np.broadcast_to(decode.batch, decode.step_time_s.shape)
    riding = _products(where, reading, tokens + prompt) - _products(where, reading, prompt)
    again = prompt_attention.mixed_factor(where.profile, where.device, where.architecture) - 1.0
    pairs = zip(decode.operators, decode.times, strict=True)
    attention = sum((t.total_s for op, t in pairs if op.kind == "attention"), np.zeros(()))
    return _products(where, where.profile, tokens) - riding - again * attention


_CACHES: Final = ("attention", "state")
_HEAD: Final = ("lm_head", "sampler")


def _products(where: Setup, profile: Profile, tokens: Array) -> Array:
    """Seconds of a pass over so many tokens but for attention, states and the head."""
    work = where.costed(Workload.decode(tokens, 0))
    roofs = Roofs(where.device, profile)
    parts = (op for op in operators(work) if op.kind not in _CACHES and op.name not in _HEAD)
    return sum((operator_time(op, roofs).total_s for op in parts), np.zeros(()))


def shared_s(decode: Forecast) -> Array:
    """Seconds of a decode step that a pass does not pay again for prompts that ride in it.

    Weights are read and kernels launched once for all tokens of a step; caches are each sequence's.
    """
    pairs = zip(decode.operators, decode.times, strict=True)
    return sum((_shared(operator, time) for operator, time in pairs), np.zeros(()))


def prompt_s(reading: Forecast) -> tuple[Array, Array]:
    """Seconds of a prompt's own work, launches and host left out, and of waiting for weights.

    Products take in the former what they would with their weights at hand, however many prompts share a
    pass; what reading the weights takes longer is paid once a pass.
    """
    total, waiting = np.zeros(()), np.zeros(())
    roofs = Roofs(reading.device, reading.profile)
    for operator, time in zip(reading.operators, reading.times, strict=True):
        own = time.total_s - time.fixed_s
        if operator.kind in WEIGHED:
            alone, own = own, weightless_s(operator, roofs)
            waiting = waiting + alone - own
        total = total + own
    return total, waiting


def weightless_s(operator: Operator, roofs: Roofs) -> Array:
    """What a product takes besides its launches if its weights were there already."""
    time = operator_time(replace(operator, weight_bytes=np.zeros(())), roofs)
    return np.asarray(time.total_s - time.fixed_s)


def launches_s(reading: Forecast) -> Array:
    """Seconds of a pass over prompts that grow with its kernels, not its tokens."""
    return sum((time.fixed_s for time in reading.times), np.zeros(()))


WEIGHED: Final = ("gemm", "experts")
"""Kinds that read weights, once for all tokens of a step."""


def _shared(operator: Operator, time: OperatorTime) -> Array:
    return time.total_s - time.link_s if operator.kind in WEIGHED else time.fixed_s


def _column(values: ArrayLike) -> Array:
    return np.atleast_1d(np.asarray(values, dtype=np.float64))[:, np.newaxis]
