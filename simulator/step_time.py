"""Step times of mixed batches, tabulated from forecasts for simulators that ask a million times.

A step of continuous batching decodes some sequences and reads a chunk of other prompts. Its weights
are read once for all tokens together; attention adds up per sequence:

    t = body(decoding + chunk) + head(sampled) + decode_attention(decoding, context) + chunk_attention

A step with chunks takes the body and the attention of prompts, and never less than the decode step
it replaces.

Each part is evaluated on a grid by the same operators and roofs as any forecast and interpolated:
linearly in tokens, bilinearly in sequences and context, in which attention over a cache is linear.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roofcast.simulator import prompt_attention
from roofcast.simulator.api import Setup
from roofcast.simulator.operators import Operator, operators
from roofcast.simulator.prediction import Forecast, forecast_pass
from roofcast.simulator.prompt_profile import prompt_profile
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.serving_costs import shared_s
from roofcast.simulator.workload import Array, Workload

_PER_SEQUENCE = ("lm_head", "sampler", "logits_gather")


@dataclass(frozen=True, slots=True)
class Surface:
    """A function of two variables on a grid, bilinear between its nodes, extended beyond them."""

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]

    def __call__(self, row: float, column: float) -> float:
        """The value at (row, column)."""
        i = min(max(bisect_right(self.rows, row) - 1, 0), len(self.rows) - 2)
        j = min(max(bisect_right(self.columns, column) - 1, 0), len(self.columns) - 2)
        u = (row - self.rows[i]) / (self.rows[i + 1] - self.rows[i])
        v = (column - self.columns[j]) / (self.columns[j + 1] - self.columns[j])
        low, high = self.values[i], self.values[i + 1]
        left = low[j] + u * (high[j] - low[j])
        right = low[j + 1] + u * (high[j + 1] - low[j + 1])
        return left + v * (right - left)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a step, by the tokens, sequences and contexts in it. Build with `tabulate`.

    `body_s` and `prompts_s` are by tokens, the latter for steps that read prompts, `head_s` by
    sequences that sample; host time is in them. `decode` is attention of decoding sequences, `mixed`
    times as long where a step also reads prompts, `chunk` that of a chunk, a token. Where prompts were
    measured in whole steps, one that reads some lasts as long as prompts and decode apart, less
    `spared_s`, by sequences that decode.
    """

    body_s: tuple[float, ...]
    prompts_s: tuple[float, ...]
    head_s: tuple[float, ...]
    decode: Surface
    chunk: Surface
    mixed: float = 1.0
    spared_s: tuple[float, ...] = ()

    def __call__(
        self, decoding: int, mean_context: float, chunks: Sequence[tuple[int, int]] = ()
    ) -> float:
        """Seconds of a step: sequences decoding, and prompt chunks as (tokens cached, tokens read)."""
        attention = self.decode(decoding, mean_context) if decoding else 0.0
        if not chunks:
            return self.body_s[decoding] + attention + self.head_s[decoding]
        read, reading = 0, 0.0
        for cached, new in chunks:
            read += new
            reading += self.chunk(cached, new) * new
        if self.spared_s:
            own = self.prompts_s[read] + reading + self.head_s[len(chunks)]
            beside = self.body_s[decoding] + attention + self.head_s[decoding]
            return own + max(beside - self.spared_s[decoding], 0.0)
        body = max(self.body_s[decoding], self.prompts_s[decoding + read])
        return body + reading + attention * self.mixed + self.head_s[decoding + len(chunks)]


def tabulate(where: Setup, max_tokens: int, max_sequences: int, max_context: int) -> StepTimes:
    """Tables for steps of up to `max_tokens` tokens and `max_sequences` sequences."""
    whole = "prefill.scale" in where.profile.parameters
    chunks_on = prompt_attention.reading(prompt_profile(where.profile), where.device)
    reading = replace(where, profile=chunks_on)
    tokens = _grid(1, max_tokens + max_sequences)
    sequences = _grid(1, max_sequences + 1)
    contexts = _grid(1, max_context)
    decode = _time(where, Workload.decode(sequences[:, None], contexts[None, :]), _is_core)
    cached, chunks = np.concatenate(([0.0], contexts)), _grid(1, max_tokens)
    chunk = _time(reading, Workload(np.array(1.0), cached[:, None], chunks[None, :]), _is_core)
    return StepTimes(
        body_s=(0.0, *_every(tokens, _body(where, tokens))),
        prompts_s=(0.0, *_every(tokens, _body(reading, tokens))),
        head_s=(0.0, *_every(sequences, _head(where, sequences))),
        decode=_surface(sequences, contexts, decode),
        chunk=_surface(cached, chunks, chunk / chunks),
        mixed=prompt_attention.mixed_factor(where.profile, where.device, where.architecture),
        spared_s=(0.0, *_every(sequences, _spared(where, sequences))) if whole else (),
    )


def _body(where: Setup, tokens: Array) -> Array:
    """Everything but attention and head, with what the host and slower stages add to a step."""
    work = where.costed(Workload.decode(tokens, 0))
    forecast = forecast_pass(work, where.device, where.profile)
    host = forecast.host_s - _dispatch(forecast) + forecast.bubble_s
    return host + _time(where, work.workload, lambda op: not _is_core(op) and not _is_head(op))


def _head(where: Setup, sequences: Array) -> Array:
    """What each sequence that samples a token adds, the host's part included."""
    work = where.costed(Workload.decode(sequences, 0))
    host = _dispatch(forecast_pass(work, where.device, where.profile))
    return host + _time(where, work.workload, _is_head)


def _dispatch(forecast: Forecast) -> Array:
    """Host time that grows with sequences."""
    return forecast.work.sequences * forecast.profile.value("host.sequence_s", 0.0)


def _spared(where: Setup, sequences: Array) -> Array:
    """What a step that reads prompts pays once, as serving_costs counts it."""
    work = where.costed(Workload.decode(sequences, 0))
    forecast = forecast_pass(work, where.device, where.profile)
    return np.array(np.broadcast_to(shared_s(forecast), sequences.shape))


def _is_core(operator: Operator) -> bool:
    return operator.kind in ("attention", "state")


def _is_head(operator: Operator) -> bool:
    return operator.name in _PER_SEQUENCE


def _time(where: Setup, workload: Workload, wanted: Callable[[Operator], bool]) -> Array:
    """Seconds of the wanted operators over the points of a workload."""
    roofs = Roofs(where.device, where.profile)
    parts = [op for op in operators(where.costed(workload)) if wanted(op)]
    total = sum((operator_time(op, roofs).total_s for op in parts), np.zeros(()))
    return np.array(np.broadcast_to(total, workload.shape))


def _grid(low: int, high: int) -> Array:
    """Whole numbers from low to high, every one at first, then a twelfth apart."""
    if high <= low:
        return np.array([low, low + 1.0])
    return np.unique(np.round(np.geomspace(low, high, 2 + round(12 * np.log2(high / low)))))


def _every(points: Array, values: Array) -> list[float]:
    return [float(v) for v in np.interp(np.arange(1, points[-1] + 1), points, values)]


def _surface(rows: Array, columns: Array, values: Array) -> Surface:
    nested = tuple(tuple(float(v) for v in row) for row in values)
    return Surface(tuple(rows.tolist()), tuple(columns.tolist()), nested)
