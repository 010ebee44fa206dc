"""Attention over a KV cache and over a prompt. Keys and values are read once per KV head.

Decode makes the query heads that share a KV head the rows of one small matrix, so that nothing is
expanded and the fused kernel reads each cache entry once.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor

# Queries of a windowed prompt are attended in blocks, so that each block reads only its window.
QUERY_BLOCK: Final = 512
# Shortest run of cache entries worth a thread block of its own.
PART_ENTRIES: Final = 256


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """One new token over its cache: q [batch, kv_heads, group, dim], k and v [.., entries, dim].

    `mask` [entries] is added to the scores: 0 where an entry is visible, -inf where not. Torch's
    fused CUDA kernel that splits a long cache over the device takes no mask; `attend_in_parts` does.
    """
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)
    if q.is_cuda:
        return attend_in_parts(q, k, v, mask, scale)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[None, None, None], scale=scale)


def attend_in_parts(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, parts: int | None = None
) -> Tensor:
    """The same by plain products, the sum over values cut into parts that run side by side.

    The score product has entries to spread over the device; the value product has only dim columns,
    so with few sequences its sum is split. Only a store read whole can be cut without a copy.
    """
    k, v = k.flatten(0, 1), v.flatten(0, 1)
    scores = torch.baddbmm(mask, q.flatten(0, 1), k.transpose(1, 2), alpha=scale)
    weights = torch.softmax(scores, dim=-1)
    parts = parts or _parts(v)
    if parts == 1 or v.shape[1] % parts or not v.is_contiguous():
        return torch.bmm(weights, v).view(q.shape)
    sequences, entries, dim = v.shape
    cut_weights = weights.view(sequences, -1, parts, entries // parts).transpose(1, 2)
    cut_values = v.view(sequences, parts, entries // parts, dim)
    return torch.matmul(cut_weights, cut_values).sum(dim=1).view(q.shape)


def _parts(v: Tensor) -> int:
    """Parts that give every multiprocessor about two thread blocks: a power of two, 1 on a CPU."""
    if not v.is_cuda:
        return 1
    wanted = 2 * torch.cuda.get_device_properties(v.device).multi_processor_count
    sequences, entries = v.shape[0], v.shape[1]
    parts = 1
    while 2 * parts * sequences <= wanted and entries // (2 * parts) >= PART_ENTRIES:
        parts *= 2
    return parts


def attend_causal(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """A whole prompt over itself: q [batch, heads, new, dim], k and v [batch, kv_heads, new, dim].

    Each token sees itself and the tokens before it, `window` in all where one is given.
    """
    grouped = q.shape[1] != k.shape[1]
    new = q.shape[-2]
    if window is None or window >= new:
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=grouped
        )
    blocks = []
    for start in range(0, new, QUERY_BLOCK):
        end, first = min(start + QUERY_BLOCK, new), max(0, start - window + 1)
        mask = band(start, end, first, window, q.device)
        block = F.scaled_dot_product_attention(
            q[..., start:end, :],
            k[..., first:end, :],
            v[..., first:end, :],
            attn_mask=mask,
            scale=scale,
            enable_gqa=grouped,
        )
        blocks.append(block)
    return torch.cat(blocks, dim=-2)


def band(start: int, end: int, first: int, window: int, device: torch.device) -> Tensor:
    """Which keys first..end-1 each of the queries start..end-1 sees: the last `window` up to itself.

    >>> band(1, 3, 0, 2, torch.device("cpu")).int().tolist()
    [[1, 1, 0], [0, 1, 1]]
    """
    queries = torch.arange(start, end, device=device)[:, None]
    behind = queries - torch.arange(first, end, device=device)
    return (behind >= 0) & (behind < window)
