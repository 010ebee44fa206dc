"""Matrix products of a decode step: y = x Wᵀ + b, with W packed for the CPU where that pays.

Torch's plain CPU product reorders a bf16 weight on every call; a weight packed once into oneDNN's
blocked layout streams from memory about a quarter faster. It is what TorchInductor does to frozen
weights. GEMM micro-benchmarks must time this module, so that they time what a decode step runs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

# Rows assumed while packing. Any hint up to 512 gives the same layout and speed for 1 to 1024 rows;
# no hint gives one that is reordered again on every call.
_PACKED_FOR_ROWS = 16


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether packing a weight of this dtype is possible and worth it on this device.

    Only bf16 and fp16 on a CPU: in float32 one row, the common case, is fastest unpacked.
    """
    available: Callable[[], bool] = torch.backends.mkldnn.is_available
    if device.type != "cpu" or not available():
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype is torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return False


class Linear(nn.Module):
    """y = x Wᵀ + b for a weight of [rows, columns] and any number of leading dimensions of x."""

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

    def forward(self, x: Tensor) -> Tensor:
        """The product."""
        if self.packed is not None:
            made: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self.packed, self.bias, "none", [], ""
            )
            return made
        assert self.weight is not None
        return F.linear(x, self.weight, self.bias)
