"""Blocks of a paged KV cache, and what a preempted sequence finds of its own when it returns."""

from __future__ import annotations

from collections import deque


class _Freed:
    """Blocks freed together; `left` of them weren't taken since, the first ones of the sequence."""

    __slots__ = ("left",)

    def __init__(self, blocks: int) -> None:
        self.left = blocks


class BlockPool:
    """Free blocks, taken in the order they were freed.

    A sequence's blocks are freed last one first, so that its beginning survives longest. What is not
    taken yet still holds its keys and values: a preempted sequence that comes back reclaims it. Source:
    vLLM v1/core/block_pool.py (Apache-2.0).

    >>> pool = BlockPool(10)
    >>> pool.take(10)
    >>> pool.give(4, owner=7)  # sequence 7 was preempted
    >>> pool.take(3)  # others need blocks
    >>> pool.kept(7), pool.reclaim(7), pool.free
    (1, 1, 0)
    """

    def __init__(self, blocks: int) -> None:
        self.free = blocks
        self._queue: deque[_Freed] = deque([_Freed(blocks)])
        self._owned: dict[int, _Freed] = {}

    def take(self, blocks: int) -> None:
        """Use `blocks` of the free ones, which must be there."""
        self.free -= blocks
        queue = self._queue
        while blocks:
            first = queue[0]
            if first.left > blocks:
                first.left -= blocks
                return
            blocks -= first.left
            first.left = 0
            queue.popleft()

    def give(self, blocks: int, owner: int | None = None) -> None:
        """Free `blocks`; an `owner` may reclaim what is left of them later."""
        self.free += blocks
        freed = _Freed(blocks)
        self._queue.append(freed)
        if owner is not None:
            self._owned[owner] = freed

    def kept(self, owner: int) -> int:
        """Blocks of the owner, from its first token on, that nobody has taken."""
        freed = self._owned.get(owner)
        return freed.left if freed else 0

    def reclaim(self, owner: int) -> int:
        """Use what is left of the owner's blocks again; returns how many those are."""
        freed = self._owned.pop(owner, None)
        if freed is None:
            return 0
        blocks, freed.left = freed.left, 0
        self.free -= blocks
        return blocks
