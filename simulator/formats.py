"""How numbers are stored: element types of weights and caches, with their scales and zero points."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Storage of one weight matrix.

    `bits` an element, plus `scale_bits` (scale and zero point together) for every block of
    `block_rows` x `block_columns` elements; 0 rows or columns means the whole extent. `compute` is
    the dtype the product runs in: fp8 for a W8A8 checkpoint, bf16 where weights are only stored small.
    """

    name: str
    bits: float
    compute: str
    scale_bits: float = 0.0
    block_rows: int = 1
    block_columns: int = 0

    def bytes(self, rows: int, columns: int) -> float:
        """Bytes of a rows x columns matrix.

        >>> WeightFormat("mxfp4", 4, "bf16", scale_bits=8, block_columns=32).bytes(64, 128)
        4352.0
        """
        blocks = 0
        if self.scale_bits:
            blocks = math.ceil(rows / (self.block_rows or rows)) * math.ceil(
                columns / (self.block_columns or columns)
            )
        return (rows * columns * self.bits + blocks * self.scale_bits) / 8


FP32 = WeightFormat("fp32", 32, "fp32")
BF16 = WeightFormat("bf16", 16, "bf16")
FP16 = WeightFormat("fp16", 16, "fp16")
