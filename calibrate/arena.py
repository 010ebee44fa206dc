"""Cold data: one buffer several times the last-level cache, handed out piece after piece.

A benchmark that reads the same matrix again times the cache. Here each call gets the next piece of a
buffer so large that a piece has left every cache before its turn comes again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle

import torch

COLD_FACTOR = 4  # times the last-level cache; with LRU a little over 1 would do
_BLOCK = 1 << 20
_LEAST_BYTES = 2 << 30  # room for a few of the largest matrices, and for long reads
_ALIGNMENT = 256  # bytes; no kernel asks for more
_MOST_PIECES = 4096


@dataclass(frozen=True, slots=True)
class Arena:
    """A filled buffer on the device. `wanted` is the size that would have been cold for certain."""

    buffer: torch.Tensor
    wanted: int

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return self.buffer.numel()

    @property
    def is_cold(self) -> bool:
        """Whether memory allowed for the size that was wanted."""
        return self.size >= self.wanted

    def pieces(self, shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
        """Non-overlapping tensors of that shape, as many as fit, spread over the whole buffer.

        MemoryError where not even one fits.
        """
        needed = math.prod(shape) * dtype.itemsize
        stride = -(-needed // _ALIGNMENT) * _ALIGNMENT
        count = self.size // stride
        if count == 0:
            raise MemoryError(f"{needed} bytes do not fit in a buffer of {self.size}")
        taken = range(0, count, -(-count // _MOST_PIECES))
        return [
            self.buffer[index * stride : index * stride + needed].view(dtype).view(shape)
            for index in taken
        ]

    def rotation(self, shape: tuple[int, ...], dtype: torch.dtype) -> cycle[torch.Tensor]:
        """The pieces, again and again."""
        return cycle(self.pieces(shape, dtype))


def make_arena(device: torch.device, cache_bytes: int, available_bytes: int) -> Arena:
    """A buffer of four times the last-level cache and no less than 2 GiB, if a fifth of memory allows.

    Its bits are small normal numbers in every float type of two bytes or more: denormals and NaNs
    would be timed otherwise.
    """
    wanted = COLD_FACTOR * cache_bytes
    size = min(max(wanted, _LEAST_BYTES), available_bytes // 5) // _BLOCK * _BLOCK
    buffer = torch.empty(size, dtype=torch.uint8, device=device)
    block = torch.empty(_BLOCK // 2, dtype=torch.float32).uniform_(0.005, 0.03)
    signs = torch.randint(0, 2, block.shape) * 2 - 1
    pattern = (block * signs).to(torch.bfloat16).view(torch.uint8).to(device)
    for start in range(0, size, _BLOCK):
        buffer[start : start + _BLOCK].copy_(pattern)
    return Arena(buffer, wanted)
