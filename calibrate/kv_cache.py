"""The KV cache: one preallocated store a layer, appended in place; windowed layers keep a ring.

A layer's store is [batch, kv_heads, size, dim], so that the entries of one head lie together, the
layout that reads fastest in decode. All sequences of a batch have the same length. Rotary embedding
is applied before keys are stored, so the order of entries inside a ring does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from roofcast.hardware.errors import CapacityError, InputError


@dataclass(frozen=True, slots=True)
class Shape:
    """What one layer stores for one sequence. `window` counts visible tokens, the new one included."""

    kv_heads: int
    dim: int
    window: int | None = None

    def size(self, capacity: int) -> int:
        """Entries kept where `capacity` tokens may come."""
        return capacity if self.window is None else min(capacity, self.window)


class Slots(Protocol):
    """Where one pass writes into a store, and which part of the store its new tokens read."""

    @property
    def mask(self) -> Tensor | None:
        """Added to the scores of the entries read: 0 or -inf; None where all are visible."""
        ...

    def write(self, store: Tensor, new: Tensor) -> None:
        """Put [batch, kv_heads, new, dim] into its slots."""
        ...

    def read(self, store: Tensor) -> Tensor:
        """The entries to read: [batch, kv_heads, entries, dim]."""
        ...


@dataclass(frozen=True, slots=True)
class Exact:
    """Slots known to the host: writes are slices, reads end at the current length."""

    start: int
    new: int
    size: int

    @property
    def mask(self) -> Tensor | None:
        """Everything read is visible."""
        return None

    def write(self, store: Tensor, new: Tensor) -> None:
        """Slot = position mod size; of more new tokens than the store holds, the last stay."""
        kept = min(self.new, self.size)
        first = (self.start + self.new - kept) % self.size
        head = min(kept, self.size - first)
        skipped = self.new - kept
        store.narrow(2, first, head).copy_(new.narrow(2, skipped, head))
        if head < kept:
            store.narrow(2, 0, kept - head).copy_(new.narrow(2, skipped + head, kept - head))

    def read(self, store: Tensor) -> Tensor:
        """Everything stored so far."""
        return store.narrow(2, 0, min(self.start + self.new, self.size))


@dataclass(frozen=True, slots=True)
class Masked:
    """Slots known to the device only: one new token, and a fixed number of entries read.

    Shapes never change from step to step, so one compiled graph or CUDA graph serves them all.
    """

    slot: Tensor
    entries: int
    hidden: Tensor

    @property
    def mask(self) -> Tensor | None:
        """0 for entries at or before the new token's position."""
        return self.hidden

    def write(self, store: Tensor, new: Tensor) -> None:
        """Put the one new token into the slot."""
        store.index_copy_(2, self.slot, new)

    def read(self, store: Tensor) -> Tensor:
        """The first `entries` entries, written or not."""
        return store.narrow(2, 0, self.entries)


class Cache:
    """Keys and values of a batch. `length` tokens are stored; `position` is the same, on the device.

    `rotations` hold cos and sin of every position, [capacity, 2, width], for each kind of rotary
    embedding the model has.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        batch: int,
        capacity: int,
        *,
        device: torch.device,
        dtype: torch.dtype,
        rotations: tuple[Tensor, ...] = (),
    ) -> None:
        if batch < 1 or capacity < 1:
            raise InputError(f"a cache needs batch and capacity of at least 1: {batch}, {capacity}")
        self.batch, self.capacity = batch, capacity
        self.sizes = tuple(shape.size(capacity) for shape in shapes)

        def store(shape: Shape, size: int) -> Tensor:
            full = (batch, shape.kv_heads, size, shape.dim)
            return torch.zeros(full, device=device, dtype=dtype)

        pairs = list(zip(shapes, self.sizes, strict=True))
        self.keys = tuple(store(shape, size) for shape, size in pairs)
        self.values = tuple(store(shape, size) for shape, size in pairs)
        self.rotations = rotations
        self.length = 0
        self.position = torch.zeros(1, device=device, dtype=torch.int64)

    @property
    def bytes(self) -> int:
        """Bytes allocated for keys and values."""
        return sum(store.nbytes for store in (*self.keys, *self.values))

    def rewind(self, length: int = 0) -> None:
        """Say that `length` tokens are stored: drops newer ones, or vouches for a filled cache."""
        if not 0 <= length <= self.capacity:
            raise CapacityError(f"this cache holds 0 to {self.capacity} tokens, not {length}")
        self.length = length
        self.position.fill_(length)

    def advance(self, new: int) -> None:
        """Count `new` tokens just stored."""
        self.length += new
        self.position.add_(new)

    def check_room(self, new: int) -> None:
        """Refuse more tokens than the cache can hold."""
        if self.length + new > self.capacity:
            raise CapacityError(
                f"the KV cache holds {self.capacity} tokens; {self.length} are stored and "
                f"{new} more do not fit"
            )

    def exact(self, new: int) -> tuple[Slots, ...]:
        """Each layer's slots for the next `new` tokens, by the host's count."""
        made = {size: Exact(self.length, new, size) for size in self.sizes}
        return tuple(made[size] for size in self.sizes)

    def masked(self, span: int) -> tuple[Slots, ...]:
        """Each layer's slots for the next token, by the device's count, reading `span` entries.

        `span` must exceed the position of the new token: a bucket, or the capacity.
        """
        made = {size: self._masked(size, min(span, size)) for size in set(self.sizes)}
        return tuple(made[size] for size in self.sizes)

    def _masked(self, size: int, entries: int) -> Masked:
        indices = torch.arange(entries, device=self.position.device)
        hidden = torch.zeros(entries, device=indices.device, dtype=self.keys[0].dtype)
        hidden.masked_fill_(indices > self.position, float("-inf"))
        return Masked(self.position % size, entries, hidden)
