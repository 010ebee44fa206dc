"""Feed-forward blocks: dense, and mixtures of experts of which only the touched ones are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from roofcast.calibrate.linear import Linear


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


# By transformers' names; gelu_new is its older spelling of the tanh form.
ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = MappingProxyType({
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu": F.relu,
    "relu2": _relu_squared,
})  # fmt: skip


class Activation(nn.Module):
    """act(x), or act(gate) * up where the last dimension holds gate and up side by side."""

    def __init__(self, name: str, *, gated: bool) -> None:
        super().__init__()
        self.function, self.gated = ACTIVATIONS[name], gated

    def forward(self, x: Tensor) -> Tensor:
        """Element-wise."""
        if not self.gated:
            return self.function(x)
        gate, up = x.chunk(2, dim=-1)
        return self.function(gate) * up


class Mlp(nn.Module):
    """down(act(up(x))); its result is one rank's part of the sum."""

    def __init__(self, up: Linear, down: Linear, activation: Activation) -> None:
        super().__init__()
        self.up, self.down, self.activation = up, down, activation

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]."""
        made: Tensor = self.down(self.activation(self.up(x)))
        return made


class Moe(nn.Module):
    """Each token runs its `top_k` experts, weighed by the softmax of the router's logits.

    `experts` is the work of all routed experts: (tokens sorted by expert, tokens of each expert) to
    their outputs. A shared expert, where there is one, runs for every token.
    """

    def __init__(
        self,
        router: Linear,
        experts: nn.Module,
        top_k: int,
        *,
        normalise: bool,
        shared: Mlp | None = None,
        shared_gate: Linear | None = None,
    ) -> None:
        super().__init__()
        self.router, self.experts, self.top_k, self.normalise = router, experts, top_k, normalise
        self.shared, self.shared_gate = shared, shared_gate

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]."""
        weights, chosen = route(self.router(x), self.top_k, normalise=self.normalise)
        flat = chosen.view(-1)
        order = flat.argsort(stable=True)
        counts = (flat[:, None] == torch.arange(self.router.rows, device=x.device)).sum(dim=0)
        outputs = self.experts(x[order // self.top_k], counts)
        unsorted = torch.empty_like(outputs).index_copy_(0, order, outputs)
        picked = unsorted.view(-1, self.top_k, outputs.shape[-1])
        made = torch.bmm(weights.to(x.dtype)[:, None], picked).squeeze(1)
        return made if self.shared is None else made + self._shared(x)

    def _shared(self, x: Tensor) -> Tensor:
        assert self.shared is not None
        made: Tensor = self.shared(x)
        if self.shared_gate is not None:
            made = made * torch.sigmoid(self.shared_gate(x))
        return made


def route(logits: Tensor, top_k: int, *, normalise: bool) -> tuple[Tensor, Tensor]:
    """Weights (float32) and indices of each token's `top_k` experts.

    softmax over all experts, then the largest; `normalise` makes their weights sum to 1.
    """
    weights, chosen = torch.softmax(logits, dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    if normalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, chosen


class LoopedExperts(nn.Module):
    """One pair of products for each touched expert; the counts come to the host first."""

    def __init__(self, ups: list[Linear], downs: list[Linear], activation: Activation) -> None:
        super().__init__()
        self.ups, self.downs = nn.ModuleList(ups), nn.ModuleList(downs)
        self.activation = activation

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """Rows of `x` sorted by expert to their experts' outputs."""
        made, start = torch.empty_like(x), 0
        for expert, count in enumerate(counts.tolist()):
            if count:
                rows = slice(start, start + count)
                made[rows] = self.downs[expert](self.activation(self.ups[expert](x[rows])))
                start += count
        return made


class GroupedExperts(nn.Module):
    """All touched experts in one grouped product, nothing known to the host: fit for CUDA graphs."""

    def __init__(self, ups: Tensor, downs: Tensor, activation: Activation) -> None:
        super().__init__()
        self.ups = nn.Parameter(ups, requires_grad=False)
        self.downs = nn.Parameter(downs, requires_grad=False)
        self.activation = activation

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """Rows of `x` sorted by expert to their experts' outputs."""
        ends = counts.cumsum(dim=0, dtype=torch.int32)
        up = F.grouped_mm(x, self.ups.transpose(1, 2), offs=ends)
        return F.grouped_mm(self.activation(up), self.downs.transpose(1, 2), offs=ends)


def can_group(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether torch has a grouped product for this dtype on this device: bf16 on CUDA since 2.10."""
    return device.type == "cuda" and dtype is torch.bfloat16 and hasattr(F, "grouped_mm")
