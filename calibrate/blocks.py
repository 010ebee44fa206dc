"""The blocks of a decoder layer: norms, attention with its cache, and the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from roofcast.calibrate import rope
from roofcast.calibrate.attention import attend, attend_causal
from roofcast.calibrate.kv_cache import Cache, Slots
from roofcast.calibrate.linear import Linear
from roofcast.calibrate.shards import Shard


@dataclass(frozen=True)
class Step:
    """What all layers share in one pass of `new` tokens for each of the cache's sequences.

    `rotations` holds cos and sin, [new, 1, width] each, for each kind of rotary embedding: none
    where positions are learned, a second one where windowed layers have their own.
    """

    cache: Cache
    slots: tuple[Slots, ...]
    new: int
    rotations: tuple[tuple[Tensor, Tensor], ...] = ()


class Norm(nn.Module):
    """RMSNorm, or LayerNorm where `centred`, over the last dimension."""

    def __init__(
        self, weight: Tensor | None, bias: Tensor | None, eps: float, width: int, *, centred: bool
    ) -> None:
        super().__init__()
        self.weight = None if weight is None else nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.eps, self.shape, self.centred = eps, (width,), centred

    def forward(self, x: Tensor) -> Tensor:
        """Normalised, then scaled."""
        if self.centred:
            return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        return F.rms_norm(x, self.shape, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of one layer's attention on one rank; `rotation` is which of the step's it uses."""

    query: int
    kv: int
    dim: int
    scale: float
    window: int | None = None
    rotation: int | None = None


class HeadNorm(nn.Module):
    """RMSNorm of each query and key head; `weight` holds one row for every head."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.eps = eps

    def forward(self, heads: Tensor) -> Tensor:
        """[.., heads, dim], queries and keys in one go."""
        return F.rms_norm(heads, (heads.shape[-1],), None, self.eps) * self.weight


class Attention(nn.Module):
    """Grouped-query attention of layer `index`; its result is one rank's part of the sum.

    Queries, keys and values come from one matrix; norms and rotation treat query and key heads,
    which lie together, as one tensor.
    """

    def __init__(
        self, index: int, heads: Heads, qkv: Linear, output: Linear, norm: HeadNorm | None
    ) -> None:
        super().__init__()
        self.index, self.heads = index, heads
        self.qkv, self.output, self.norm = qkv, output, norm

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """[tokens, hidden] to [tokens, hidden], tokens being batch x new."""
        heads, dim = self.heads, self.heads.dim
        rotated = heads.query + heads.kv
        qkv = self.qkv(x).view(step.cache.batch, step.new, rotated + heads.kv, dim)
        qk, v = qkv[:, :, :rotated], qkv[:, :, rotated:].transpose(1, 2)
        if self.norm is not None:
            qk = self.norm(qk)
        if heads.rotation is not None:
            qk = rope.rotate(qk, *step.rotations[heads.rotation])
        q, k = qk[:, :, : heads.query], qk[:, :, heads.query :].transpose(1, 2)
        self._store(step, k, v)
        mixed = self._decode(q, step) if step.new == 1 else self._prefill(q, k, v)
        made: Tensor = self.output(mixed.reshape(x.shape[0], heads.query * dim))
        return made

    def _store(self, step: Step, k: Tensor, v: Tensor) -> None:
        slots = step.slots[self.index]
        slots.write(step.cache.keys[self.index], k)
        slots.write(step.cache.values[self.index], v)

    def _decode(self, q: Tensor, step: Step) -> Tensor:
        """The newest token over everything visible in the cache: [batch, kv_heads, group, dim]."""
        heads, slots = self.heads, step.slots[self.index]
        grouped = q.reshape(step.cache.batch, heads.kv, heads.query // heads.kv, heads.dim)
        k = slots.read(step.cache.keys[self.index])
        v = slots.read(step.cache.values[self.index])
        return attend(grouped, k, v, slots.mask, heads.scale)

    def _prefill(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The whole prompt over itself: [batch, new, heads, dim]."""
        heads = self.heads
        mixed = attend_causal(q.transpose(1, 2), k, v, heads.scale, heads.window)
        return mixed.transpose(1, 2)


class Branch(nn.Module):
    """One branch of the residual stream: x + block(norm(x)), summed over ranks.

    `after` normalises the branch once more before it is added, where a model does that.
    """

    def __init__(self, norm: Norm, block: nn.Module, after: Norm | None, shard: Shard) -> None:
        super().__init__()
        self.norm, self.block, self.after, self.shard = norm, block, after, shard

    def forward(self, x: Tensor, *step: Step) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]."""
        made = self.shard.sum(self.block(self.norm(x), *step))
        return x + (made if self.after is None else self.after(made))


class Layer(nn.Module):
    """One layer: attention, then the MLP."""

    def __init__(self, attention: Branch, mlp: Branch) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """[tokens, hidden] to [tokens, hidden]."""
        made: Tensor = self.mlp(self.attention(x, step))
        return made
