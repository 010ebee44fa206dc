"""How many cache entries the new tokens of a sequence see and read: windows, chunks, compression.

Positions count from 0. The token at position p sees p + 1 tokens, itself included, before any window
or selection. `context` tokens are cached, `new` tokens arrive; both broadcast and may be arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roofcast.simulator.architecture import AttentionCore, LatentCore

Array = NDArray[np.float64]


def visible(core: AttentionCore | LatentCore, context: Array) -> Array:
    """Entries one new token attends to after `context` cached tokens.

    >>> core = AttentionCore(8, 1, 64, 64, window=128)
    >>> visible(core, np.array([0.0, 126.0, 127.0, 4096.0]))
    array([  1., 127., 128., 128.])
    """
    return pairs(core, context, np.ones_like(context))


def pairs(core: AttentionCore | LatentCore, context: Array, new: Array) -> Array:
    """Sum over the new tokens of the entries each attends to (query-key pairs of one sequence).

    >>> float(pairs(AttentionCore(8, 8, 64, 64), np.array(0.0), np.array(4.0)))  # 1 + 2 + 3 + 4
    10.0
    """
    return _seen_before(core, context + new) - _seen_before(core, context)


def entries_read(core: AttentionCore | LatentCore, context: Array, new: Array) -> Array:
    """Distinct cache entries one sequence reads, the new ones included, each once.

    >>> core = AttentionCore(8, 8, 64, 64, window=128)
    >>> float(entries_read(core, np.array(1000.0), np.array(1.0)))
    128.0
    """
    end = context + new
    if core.selected is not None:
        total = np.floor(end / _compression(core))
        return np.minimum(total, pairs(core, context, new))
    if isinstance(core, LatentCore) or core.window is None:
        return np.floor(end / _compression(core))
    if core.chunked:
        return end - np.floor(context / core.window) * core.window
    return np.minimum(end, core.window + new - 1)


def scored(core: AttentionCore | LatentCore, context: Array, new: Array) -> Array:
    """Query-key pairs an indexer scores: all entries, before any is selected."""
    ratio = _compression(core)
    return _floor_sum(context + new, ratio) - _floor_sum(context, ratio)


def _compression(core: AttentionCore | LatentCore) -> int:
    return core.compression if isinstance(core, AttentionCore) else 1


def _floor_sum(end: Array, ratio: float) -> Array:
    """Sum of floor(y / ratio) for y = 1 .. end."""
    whole = np.floor(end / ratio)
    return ratio * whole * (whole - 1) / 2 + (end - whole * ratio + 1) * whole


def _seen_before(core: AttentionCore | LatentCore, end: Array) -> Array:
    """Sum of the entries seen by the tokens at positions 0 .. end - 1."""
    if isinstance(core, AttentionCore) and core.window is not None:
        window = float(core.window)
        if core.chunked:
            whole = np.floor(end / window)
            rest = end - whole * window
            return whole * window * (window + 1) / 2 + rest * (rest + 1) / 2
        growing = np.minimum(end, window)
        return growing * (growing + 1) / 2 + (end - growing) * window
    ratio = float(_compression(core))
    if core.selected is None:
        return _floor_sum(end, ratio)
    growing = np.minimum(end, core.selected * ratio)
    return _floor_sum(growing, ratio) + (end - growing) * core.selected
