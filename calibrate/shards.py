"""Tensor parallelism: which part of each tensor a rank holds, and how ranks combine results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from roofcast.hardware.errors import InputError
from roofcast.simulator.architecture import Weight

# Their inputs are what other matrices produced in parts, so they are cut by columns and their
# outputs summed; everything else that can be cut is cut by rows.
CUT_BY_COLUMNS: Final = frozenset({"o_proj", "down_proj", "shared_down", "experts_down"})


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank of a tensor-parallel group; `group` is a torch.distributed process group or None
    for the default one."""

    rank: int = 0
    ranks: int = 1
    group: Any = None

    def rows(self, weight: Weight) -> slice:
        """The rows of a weight that this rank holds."""
        if weight.op in CUT_BY_COLUMNS:
            return slice(0, weight.rows)
        return self._cut(weight, weight.rows)

    def columns(self, weight: Weight) -> slice:
        """The columns of a weight that this rank holds."""
        if weight.op not in CUT_BY_COLUMNS:
            return slice(0, weight.columns)
        return self._cut(weight, weight.columns)

    def share(self, pieces: int) -> int:
        """How many of `pieces` (heads) this rank holds: an equal part, at least one."""
        return max(1, pieces // self.ranks)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of every rank's `x`, in place."""
        if self.ranks > 1:
            torch.distributed.all_reduce(x, group=self.group)
        return x

    def gather(self, x: Tensor) -> Tensor:
        """Every rank's `x`, joined along the last dimension."""
        if self.ranks == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.ranks)]
        torch.distributed.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, dim=-1)

    def _cut(self, weight: Weight, length: int) -> slice:
        """An equal part of `length`; where there are fewer pieces than ranks, one whole piece."""
        pieces, ranks = weight.pieces, self.ranks
        if pieces == 1 or ranks == 1:
            return slice(0, length)
        if pieces % ranks == 0:
            parts, part = ranks, self.rank
        elif ranks % pieces == 0:
            parts, part = pieces, self.rank * pieces // ranks
        else:
            raise InputError(
                f"{weight.path} has {pieces} pieces, which {ranks} tensor-parallel ranks "
                "cannot share evenly"
            )
        size = length // parts
        return slice(part * size, (part + 1) * size)
