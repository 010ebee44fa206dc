"""Matrix products of a decode step: y = x Wᵀ + b, by the fastest route torch has on each device.

Torch's plain product is not that on a CPU. Streaming a weight from memory for a few rows of x, on one
Sapphire Rapids core (torch 2.13, GB/s, a 16384 x 2048 weight, cold):

    rows                          1     4     8    16    64
    bf16, plain                12.1  12.4  11.1  10.2   6.2   repacks W on every call
    bf16, packed by oneDNN     13.2  12.9  12.4  10.4   8.2   packed once, when built
    fp32, plain                14.7   6.8   4.3   4.4   2.5   MKL's gemv, then its gemm
    fp32, oneDNN               13.6  10.8   8.4   7.6   3.7   on the same plain W

Both cores together read 23 GB/s, which packed bf16 reaches from one row on and plain bf16 does not
(16 to 19). So half-precision weights are packed, and float32 takes oneDNN from four rows on. GEMM
micro-benchmarks must time this module, so that they time what a decode step runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

# Rows assumed while packing. Any hint up to 512 gives the same layout and speed for 1 to 1024 rows;
# no hint gives one that is reordered again on every call.
_PACKED_FOR_ROWS: Final = 16
_FEW_ROWS: Final = 4


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether weights of this dtype can be packed for this device, and gain from it."""
    if not _has_onednn(device):
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype is torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return False


def _has_onednn(device: torch.device) -> bool:
    available: Callable[[], bool] = torch.backends.mkldnn.is_available
    return device.type == "cpu" and available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Module):
    """y = x Wᵀ + b for a weight of [rows, columns] and x of [tokens, columns]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, packed: bool = False) -> None:
        super().__init__()
        self.rows, self.columns = weight.shape
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.packed: Tensor | None = None
        self.weight: Tensor | None = None
        if packed:
            # A plain attribute: an opaque oneDNN tensor cannot be a buffer or a parameter.
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
        else:
            # A parameter stays itself: a tied head is the token table, not a second one.
            own = isinstance(weight, nn.Parameter)
            self.weight = weight if own else nn.Parameter(weight, requires_grad=False)
        self.onednn = weight.dtype is torch.float32 and _has_onednn(weight.device)

    def forward(self, x: Tensor) -> Tensor:
        """The product."""
        if self.packed is not None:
            return self._by_onednn(x, self.packed)
        assert self.weight is not None
        if self.onednn and x.shape[0] >= _FEW_ROWS and not torch.compiler.is_compiling():
            return self._by_onednn(x, self.weight)
        return F.linear(x, self.weight, self.bias)

    def _by_onednn(self, x: Tensor, weight: Tensor) -> Tensor:
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, self.bias, "none", [], "")
        return made
