"""What an engine allocates for the cache of a sequence, as opposed to what a step reads of it.

    bytes = sum over kinds of layers of slots x pages x page bytes

A page holds `block_tokens` tokens of one layer. A layer with a window w keeps pages over its last
w - 1 tokens, ceil((w - 1) / b) + 1 of them at most, where the engine frees what falls behind.

vLLM's hybrid manager deals pages to groups of layers of one kind. All groups have as many layers,
so the last one of a kind may have slots that hold nothing. A recurrent state takes one page, and
pages grow to ceil(state / (16 x bytes a token)) x 16 tokens until it fits. Source:
vllm/v1/core/kv_cache_utils.py, vllm/model_executor/models/config.py (Apache-2.0).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roofcast.simulator.architecture import AttentionCore, Core, StateCore
from roofcast.simulator.cache import entry_elements
from roofcast.simulator.memory_policy import Policy
from roofcast.simulator.workload import Array

_PADDED_AT = 1.25
_GROWS_BY = 16


@dataclass(frozen=True, slots=True)
class CacheKind:
    """Layers of one rank that keep the same: bytes a token, a window, tokens an entry, or a state."""

    token_bytes: float
    window: int | None = None
    compression: int = 1
    state_bytes: float = 0.0


def kinds(cores: Mapping[Core, int], cell: float, state_share: float = 1.0) -> Counter[CacheKind]:
    """How many layers keep what, from the cores as one rank holds them; `cell` bytes an element."""
    found: Counter[CacheKind] = Counter()
    for core, count in cores.items():
        if isinstance(core, StateCore):
            size = core.conv_elements * cell + core.state_elements * core.state_element_bytes
            found[CacheKind(0.0, state_bytes=size * state_share)] += count
        elif entry_elements(core):
            window = core.window if isinstance(core, AttentionCore) else None
            compression = core.compression if isinstance(core, AttentionCore) else 1
            found[CacheKind(cell * entry_elements(core), window, compression)] += count
    return found


def allocated_bytes(layers: Mapping[CacheKind, int], tokens: Array, policy: Policy) -> Array:
    """Bytes one sequence of `tokens` cached tokens holds on one rank."""
    block = block_tokens(layers, policy)
    slots = layer_slots(layers, policy)
    total = np.zeros_like(tokens)
    for kind in layers:
        total = total + slots[kind] * _layer_bytes(kind, tokens, block, layers, policy)
    return total


def block_tokens(layers: Mapping[CacheKind, int], policy: Policy) -> int:
    """Tokens of a page: as set, or as many as one recurrent state needs where both share pages.

    Qwen3.5-9B: a state of 2,146,304 bytes beside 4,096 bytes a token needs 528 tokens.
    """
    entry = max((kind.token_bytes for kind in layers), default=0.0)
    state = max((kind.state_bytes for kind in layers), default=0.0)
    if not (policy.grouped and state and entry):
        return policy.block_tokens
    return max(policy.block_tokens, _GROWS_BY * math.ceil(state / (_GROWS_BY * entry)))


def layer_slots(layers: Mapping[CacheKind, int], policy: Policy) -> dict[CacheKind, int]:
    """Layers of each kind that pages are dealt to, the empty places of its last group included.

    Groups are as large as the rarest kind, or as the commonest where that is at most a quarter more.
    """
    if not policy.grouped or len(layers) == 1:
        return dict(layers)
    least, most = min(layers.values()), max(layers.values())
    size = most if most < _PADDED_AT * least else least
    return {kind: size * math.ceil(count / size) for kind, count in layers.items()}


def _layer_bytes(
    kind: CacheKind,
    tokens: Array,
    block: int,
    layers: Mapping[CacheKind, int],
    policy: Policy,
) -> Array:
    if kind.state_bytes:
        page = block * max(other.token_bytes for other in layers) if policy.grouped else 0.0
        return np.full_like(tokens, max(kind.state_bytes, page))
    kept, step = tokens, float(block * kind.compression)
    window = kind.window if policy.windows != "full" else None
    if not block:
        held = kept if window is None else np.minimum(kept, window)
        return np.floor(held / kind.compression) * kind.token_bytes
    pages = np.ceil(kept / step)
    if window is not None:
        spare = 1 if policy.windows == "pages" else 0
        pages = np.minimum(pages, math.ceil((window - 1) / block) + spare)
    return pages * (block * kind.token_bytes)
