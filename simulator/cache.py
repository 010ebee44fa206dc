"""What a sequence keeps between steps: KV cache that grows, caches that windows bound, fixed states.

As served, for one sequence on one device (no tensor parallelism): grouped keys and values once per
KV head, latent attention's compressed entry once for all heads, an indexer's key beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofcast.simulator.architecture import Architecture, AttentionCore, Core, LatentCore, StateCore
from roofcast.simulator.formats import element_bytes


def entry_elements(core: Core) -> int:
    """Elements one cached token (or compressed group of tokens) takes in one layer.

    >>> entry_elements(AttentionCore(64, 8, 128, 128))
    2048
    >>> entry_elements(LatentCore(128, 512, 64, 128, 128))
    576
    """
    if isinstance(core, StateCore):
        return 0
    index = core.indexer.key_dim if core.indexer else 0
    if isinstance(core, LatentCore):
        return core.latent_dim + core.rope_dim + index
    value = 0 if core.value_is_key else core.value_dim
    return index + (core.kv_heads * (core.key_dim + value) if core.stores else 0)


def kv_bytes_per_token(architecture: Architecture, kv_dtype: str = "bf16") -> float:
    """Bytes a new token appends to the cache of its sequence while no window is full.

    A layer that keeps one entry for so many tokens counts its mean. Llama-3-70B: 80 layers x 2 x 8
    heads x 128 x 2 bytes = 327,680.
    """
    return _per_token(architecture, kv_dtype, lambda core: True)


def kv_bytes_per_token_beyond_windows(architecture: Architecture, kv_dtype: str = "bf16") -> float:
    """Bytes a new token adds once every window is full: what layers without a window append."""
    return _per_token(architecture, kv_dtype, lambda core: _window(core) is None)


def state_bytes_per_sequence(architecture: Architecture, kv_dtype: str = "bf16") -> float:
    """Bytes of recurrent and convolution states of a sequence, the same at every context."""
    cell = element_bytes(kv_dtype)
    return sum(
        count * (core.conv_elements * cell + core.state_elements * core.state_element_bytes)
        for core, count in _cores(architecture).items()
        if isinstance(core, StateCore)
    )


def cache_bytes(
    architecture: Architecture, context: ArrayLike, kv_dtype: str = "bf16"
) -> NDArray[np.float64]:
    """Bytes a sequence keeps after `context` tokens: cache and states, as few as later steps need.

    A window of w keeps w - 1 entries: the step that brings a new token no longer sees the oldest.
    Engines that page uniformly allocate more; see the memory ledger.
    """
    tokens = np.asarray(context, dtype=np.float64)
    cell = element_bytes(kv_dtype)
    total = np.full_like(tokens, state_bytes_per_sequence(architecture, kv_dtype))
    for core, count in _cores(architecture).items():
        total += count * cell * entry_elements(core) * entries_kept(core, tokens)
    return total


def entries_kept(core: Core, context: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cache entries of one layer that later steps still need after `context` tokens.

    >>> entries_kept(AttentionCore(64, 8, 64, 64, window=128), np.array([10.0, 4096.0]))
    array([ 10., 127.])
    """
    window = _window(core)
    if window is not None:
        return np.minimum(context, window - 1)
    return np.floor(context / _compression(core))


def _per_token(architecture: Architecture, kv_dtype: str, keep: Callable[[Core], bool]) -> float:
    cell = element_bytes(kv_dtype)
    return sum(
        count * cell * entry_elements(core) / _compression(core)
        for core, count in _cores(architecture).items()
        if keep(core)
    )


def _cores(architecture: Architecture) -> Counter[Core]:
    return Counter(core for layer in architecture.layers for core in layer.cores)


def _window(core: Core) -> int | None:
    return core.window if isinstance(core, AttentionCore) else None


def _compression(core: Core) -> int:
    return core.compression if isinstance(core, AttentionCore) else 1
