"""From logits to tokens: greedy, temperature and top-p sampling.

A sampler is a frozen value called as ``sampler(logits, generator)`` with [batch, vocabulary] logits;
it returns [batch] token ids. Random samplers draw one uniform number a row and invert the cumulative
distribution, which costs one pass over the vocabulary where drawing noise for every token would cost
a random number each. Nothing waits for the host, so a CUDA graph can hold a sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roofcast.hardware.errors import InputError

COLDEST: Final = 1e-6
"""Below this temperature sampling is greedy: a logit one float32 step behind is never drawn."""

Sampler = Callable[[Tensor, torch.Generator | None], Tensor]


@dataclass(frozen=True, slots=True)
class Greedy:
    """The most likely token."""

    def __call__(self, logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Token ids of the largest logits."""
        return logits.max(dim=-1).indices


@dataclass(frozen=True, slots=True)
class Temperature:
    """A token drawn from softmax(logits / t)."""

    t: float

    def __call__(self, logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One draw a row."""
        return draw(tempered(logits, self.t), generator)


@dataclass(frozen=True, slots=True)
class TopP:
    """A token drawn from the nucleus of softmax(logits / t): its likeliest tokens of mass >= p.

    Source: Holtzman et al., The Curious Case of Neural Text Degeneration, arXiv 1904.09751, eq. 2.
    """

    p: float
    t: float = 1.0

    def __call__(self, logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One draw a row."""
        probabilities = tempered(logits, self.t)
        return draw(probabilities * nucleus(probabilities, self.p), generator)


greedy = Greedy()


def temperature(t: float) -> Sampler:
    """A sampler at temperature `t`; 1 leaves the model's distribution alone, 0 is greedy."""
    if not 0 <= t < float("inf"):
        raise InputError(f"temperature must be at least 0 and finite, not {t}")
    return greedy if t < COLDEST else Temperature(t)


def top_p(p: float, t: float = 1.0) -> Sampler:
    """A nucleus sampler of mass `p` at temperature `t`; p = 1 keeps every token."""
    if not 0 < p <= 1:
        raise InputError(f"top_p must be above 0 and at most 1, not {p}")
    plain = temperature(t)
    return plain if p == 1 or plain is greedy else TopP(p, t)


def tempered(logits: Tensor, t: float) -> Tensor:
    """softmax(logits / t) over the last dimension, in float32."""
    return torch.softmax(logits.float() if t == 1 else logits.float() / t, dim=-1)


def nucleus(probabilities: Tensor, p: float) -> Tensor:
    """Which tokens are in the smallest set of mass >= p; of equally likely ones the first are taken.

    A token is in when the tokens before it in falling order hold less than p.

    >>> nucleus(torch.tensor([[0.1, 0.5, 0.25, 0.15]]), 0.7)
    tensor([[False,  True,  True, False]])
    """
    if probabilities.is_cpu and not torch.compiler.is_compiling():
        rows = [_row_nucleus(row, p) for row in probabilities.numpy()]
        return torch.from_numpy(np.stack(rows))
    return _sorted_nucleus(probabilities, p)


def _sorted_nucleus(probabilities: Tensor, p: float) -> Tensor:
    """The nucleus by sorting all rows at once, without a word to the host."""
    falling = torch.sort(probabilities, dim=-1, descending=True).values
    size = 1 + (falling[..., :-1].cumsum(dim=-1) < p).sum(dim=-1, keepdim=True)
    least = falling.gather(-1, size - 1)
    above, tied = probabilities > least, probabilities == least
    room = size - above.sum(dim=-1, keepdim=True)
    return above | (tied & (tied.cumsum(dim=-1) <= room))


def _row_nucleus(row: NDArray[np.float32], p: float) -> NDArray[np.bool_]:
    """The nucleus of one row on the CPU, some twenty times as fast as sorting it with torch.

    NumPy sorts bare values with AVX-512; torch's sort carries indices along. Only tokens of at least
    (total - p) / V can be in, as the others together hold less than total - p: where they are few,
    as in a trained model's distribution, only they are sorted.
    """
    spare = float(row.sum(dtype=np.float64)) - p
    likely = row >= spare / row.size
    few = 8 * np.count_nonzero(likely) < row.size
    falling = np.sort(row[likely] if few else row)[::-1]
    size = 1 + int(np.searchsorted(falling[:-1].cumsum(dtype=np.float64), p))
    chosen: NDArray[np.bool_] = row >= falling[size - 1]
    surplus = int(np.count_nonzero(chosen)) - size
    if surplus:  # of the equally likely last ones, the first are in
        chosen[np.flatnonzero(row == falling[size - 1])[-surplus:]] = False
    return chosen


def draw(weights: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One index a row, with probability proportional to its weight; never one of weight 0.

    The index is the first whose cumulative weight exceeds u x total, u uniform in [0, 1).
    """
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[..., -1:]
    u = torch.rand(total.shape, generator=generator, device=weights.device)
    target = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1)
