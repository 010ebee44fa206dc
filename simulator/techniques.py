"""What a technique costs and brings for one set-up, and where it stops paying.

Each effect compares decode steps per token with and without the technique over a sweep of batches; a
ratio below 1 means faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.accelerator import Accelerator
from roofcast.simulator.api import Setup
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.insight import largest_batch
from roofcast.simulator.memory import rank_cache_bytes, rank_weight_bytes
from roofcast.simulator.planning.costing import BATCHES, CostTable, Lengths
from roofcast.simulator.planning.speculation import (
    NGRAM,
    Speculation,
    break_even,
    draft_bytes,
    step_s,
)
from roofcast.simulator.quantization import requantise
from roofcast.simulator.workload import Array, Workload

_PAYS = 0.995


@dataclass(frozen=True)
class Effect:
    """A technique over a sweep of batches.

    `token_s` is the time per output token with it, `ratio` that over the time without. `memory_bytes`
    is what a rank holds more (or less), `sequences` how many fit at the sweep's context, before and
    after. `note` says in words what no number does, such as the break-even acceptance.
    """

    name: str
    token_s: Array
    ratio: Array
    memory_bytes: float
    sequences: tuple[int, int]
    note: str

    @property
    def pays(self) -> NDArray[np.bool_]:
        """Where it saves at least half a per cent."""
        return np.asarray(self.ratio < _PAYS)


def stored(where: Setup, batches: Array, context: int, weight_dtype: str) -> Effect:
    """Weights in another format: fewer bytes to read, arithmetic at that format's peak."""
    changed = replace(where, architecture=requantise(where.architecture, weight_dtype))
    saved = _weights(changed) - _weights(where)
    return _compared(f"weights in {weight_dtype}", where, changed, batches, context, saved, "")


def cached(where: Setup, batches: Array, context: int, kv_dtype: str) -> Effect:
    """The cache in another dtype: fewer bytes to read and hold for every sequence."""
    changed = replace(where, kv_dtype=kv_dtype)
    one = np.array(float(context))
    before, after = (
        float(rank_cache_bytes(each.costed(Workload.decode(1, 0)), one))
        for each in (where, changed)
    )
    note = f"a sequence holds {after / before:.2f} times as much"
    return _compared(f"cache in {kv_dtype}", where, changed, batches, context, 0.0, note)


def drafted(where: Setup, batches: Array, context: int, speculation: Speculation) -> Effect:
    """Speculative decoding: a verifying pass and the draft's steps, shared by the tokens accepted."""
    plain = where.decode(batches, context).step_time_s
    step = step_s(where, speculation, batches, context)
    token_s = step / speculation.tokens_per_step
    needed = break_even(plain, step, speculation.tokens)
    held = draft_bytes(where, speculation)
    who = "lookup in the prompt" if speculation.draft == NGRAM else speculation.draft
    note = (
        f"{speculation.tokens_per_step:.2f} tokens a step at {100 * speculation.acceptance:.0f} % "
        f"by {who}; "
        f"breaks even at {_needed(needed, 0)} accepted for {batches[0]:,.0f}, "
        f"{_needed(needed, -1)} for {batches[-1]:,.0f}"
    )
    most = _most(where, context)
    room = most - int(np.ceil(held / max(_sequence_bytes(where, context), 1.0)))
    return _effect("speculation", plain, token_s, held, (most, max(room, 0)), note)


def offloaded(where: Setup, batches: Array, context: int, share: float) -> Effect:
    """Routed experts in host memory: those that a step touches come over PCIe, each step anew."""
    plain = where.decode(batches, context)
    far = sum(
        (part.weight_bytes for part in plain.operators if part.kind == "experts"), np.zeros(())
    )
    token_s = plain.step_time_s + share * far / where.device.pcie_bytes_per_s
    freed = share * _expert_bytes(where)
    most = _most(where, context)
    more = most + int(freed / max(_sequence_bytes(where, context), 1.0))
    note = f"{100 * share:.0f} % of the experts touched cross PCIe in every step"
    return _effect("experts on the host", plain.step_time_s, token_s, -freed, (most, more), note)


@dataclass(frozen=True)
class Prompts:
    """What prompts do to decode, and what techniques for them change; seconds.

    `alone_s` is a prompt read by itself, `hit_s` with its prefix found in a cache; `stall_s` what a
    step that reads a whole prompt lasts, `chunk_s` one that reads a chunk of `chunk` tokens of it;
    `passes` so many chunks make the prompt; `transfer_s` sends its cache to another device.
    """

    alone_s: float
    hit_s: float
    stall_s: float
    chunk_s: float
    chunk: int
    passes: int
    transfer_s: float


def prompts(
    where: Setup, batch: int, context: int, prompt: int, hits: float, chunk: int
) -> Prompts:
    """Prefix hits, chunks and transfers for one prompt beside a decoding batch."""
    whole = CostTable(Lengths(context, prompt)).of(where, prompt, riding=True)
    read = max(prompt * (1.0 - hits), 1.0)
    hit = CostTable(Lengths(context, read, prompt - read)).of(where, prompt, riding=True)
    part = CostTable(Lengths(context, prompt)).of(where, chunk, riding=True)
    step = float(where.decode(batch, context).step_time_s)
    return Prompts(
        alone_s=whole.alone_s,
        hit_s=hit.alone_s,
        stall_s=step + _at(whole.lone_s, batch),
        chunk_s=step + _at(part.lone_s, batch) / part.passes,
        chunk=min(chunk, prompt),
        passes=-(-prompt // chunk),
        transfer_s=prompt_cache_bytes(where, prompt) / link_bytes_per_s(where.device),
    )


def prompt_cache_bytes(where: Setup, prompt: float) -> float:
    """Cache of one prompt on the fullest rank."""
    work = where.costed(Workload.decode(1, 0))
    return float(rank_cache_bytes(work, np.array(float(prompt)))) / where.parallelism.pipeline


def link_bytes_per_s(device: Accelerator) -> float:
    """Bandwidth to another device: the network's where it is known, else the link inside a node."""
    link = device.network_bytes_per_s or device.scale_up_bytes_per_s
    return link if link is not None else device.pcie_bytes_per_s


def _at(values: Array, batch: int) -> float:
    return float(np.interp(batch, BATCHES, values))


def _compared(
    name: str,
    where: Setup,
    changed: Setup,
    batches: Array,
    context: int,
    memory_bytes: float,
    note: str,
) -> Effect:
    before, after = (each.decode(batches, context).step_time_s for each in (where, changed))
    sequences = (_most(where, context), _most(changed, context))
    return _effect(name, before, after, memory_bytes, sequences, note)


def _effect(
    name: str,
    before: Array,
    after: Array,
    memory_bytes: float,
    sequences: tuple[int, int],
    note: str,
) -> Effect:
    return Effect(name, after, after / before, memory_bytes, sequences, note)


def _needed(needed: Array, index: int) -> str:
    value = float(needed[index])
    return "no share" if np.isnan(value) else f"{100 * value:.0f} %"


def _weights(where: Setup) -> float:
    return rank_weight_bytes(where.costed(Workload.decode(1, 0)))


def _expert_bytes(where: Setup) -> float:
    def without(model: Architecture) -> Architecture:
        return replace(model, layers=tuple(replace(each, experts=None) for each in model.layers))

    return _weights(where) - _weights(replace(where, architecture=without(where.architecture)))


def _most(where: Setup, context: int) -> int:
    return int(np.min(largest_batch(where.decode(where.parallelism.data, context))))


def _sequence_bytes(where: Setup, context: int) -> float:
    return float(np.max(where.decode(where.parallelism.data, context).memory.cache_bytes))
