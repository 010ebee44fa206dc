"""Where a decoder's weights come from: a seed, or tensors of a checkpoint.

A source answers one tensor at a time, already cut to the part that is wanted, so that building a
decoder needs the memory of its weights and of one tensor more.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch
from torch import Tensor

from roofcast.hardware.errors import InputError, suggestion

# A prime, so that the rows of no matrix line up with the pool: they are shifted windows of it, never
# copies of each other. Drawing 4 M normal numbers takes 20 ms where drawing 1 G takes 5 s.
POOL_ELEMENTS: Final = 4_194_301


def _everything() -> slice:
    return slice(None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One part of one tensor: its key, its whole shape, which rows and columns of it are wanted.

    Random values have standard deviation `std`; where that is 0 they are the `constant`.
    """

    key: str
    shape: tuple[int, ...]
    rows: slice = field(default_factory=_everything)
    columns: slice = field(default_factory=_everything)
    std: float = 0.0
    constant: float = 0.0

    def cut(self, whole: Tensor) -> Tensor:
        """The wanted part of the whole tensor."""
        if len(self.shape) == 1:
            return whole[self.rows]
        return whole[..., self.rows, self.columns]


class Source(Protocol):
    """Anything that can answer a `Wanted`."""

    def read(self, wanted: Wanted, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The wanted part, contiguous."""
        ...


class RandomWeights:
    """Normal numbers from a seed: windows of one pool, at an offset given by the tensor's key."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._pools: dict[torch.device, Tensor] = {}

    def read(self, wanted: Wanted, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The wanted part of the tensor this seed gives; equal whatever else is read."""
        whole = torch.empty(wanted.shape, device=device, dtype=dtype)
        if wanted.std == 0:
            whole.fill_(wanted.constant)
        else:
            start = zlib.crc32(f"{self.seed}:{wanted.key}".encode()) % POOL_ELEMENTS
            self.fill(whole, std=wanted.std, start=start)
        return wanted.cut(whole).contiguous()

    def fill(self, tensor: Tensor, *, std: float = 1.0, start: int = 0) -> None:
        """Overwrite a contiguous tensor with the pool, from `start` on and round and round."""
        pool, flat, done = self._pool(tensor.device), tensor.view(-1), 0
        while done < flat.numel():
            count = min(POOL_ELEMENTS - start, flat.numel() - done)
            torch.mul(pool[start : start + count], std, out=flat[done : done + count])
            done, start = done + count, 0

    def _pool(self, device: torch.device) -> Tensor:
        if device not in self._pools:
            # Drawn on the CPU, so that a seed means the same weights on every device.
            generator = torch.Generator().manual_seed(self.seed)
            self._pools[device] = torch.randn(POOL_ELEMENTS, generator=generator).to(device)
        return self._pools[device]


@dataclass(frozen=True, slots=True)
class StateDict:
    """Tensors of a checkpoint by key; matrices are [rows, columns], experts stacked in front."""

    tensors: Mapping[str, Tensor]

    def read(self, wanted: Wanted, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The wanted part of the tensor with that key."""
        given = self.tensors.get(wanted.key)
        if given is None:
            raise InputError(
                f"the weights lack {wanted.key!r}{suggestion(wanted.key, list(self.tensors))}"
            )
        if tuple(given.shape) != wanted.shape:
            raise InputError(
                f"{wanted.key} must have shape {wanted.shape}, not {tuple(given.shape)}"
            )
        return wanted.cut(given).to(device=device, dtype=dtype, copy=True).contiguous()
