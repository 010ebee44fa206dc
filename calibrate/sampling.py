"""From logits to tokens: greedy, temperature and top-p sampling.

A sampler is a frozen value called as ``sampler(logits, generator)`` with [batch, vocabulary] logits;
it returns [batch] token ids. Random samplers draw one uniform number a row and invert the cumulative
distribution, which costs one pass over the vocabulary where drawing noise for every token would cost
a random number each. Nothing waits for the host, so a CUDA graph can hold a sampler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from roofcast.hardware.errors import InputError

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
    """A sampler at temperature `t`; 0 is greedy, 1 leaves the model's distribution alone."""
    if not 0 <= t < float("inf"):
        raise InputError(f"temperature must be at least 0 and finite, not {t}")
    return greedy if t == 0 else Temperature(t)


def top_p(p: float, t: float = 1.0) -> Sampler:
    """A nucleus sampler of mass `p` at temperature `t`; p = 1 keeps every token."""
    if not 0 < p <= 1:
        raise InputError(f"top_p must be above 0 and at most 1, not {p}")
    plain = temperature(t)
    return plain if p == 1 or t == 0 else TopP(p, t)


def tempered(logits: Tensor, t: float) -> Tensor:
    """softmax(logits / t) over the last dimension, in float32.

    The largest logit is taken off before the division, so that no temperature overflows.
    """
    scores = logits.float()
    if t != 1:
        scores = (scores - scores.amax(dim=-1, keepdim=True)) / t
    return torch.softmax(scores, dim=-1)


def nucleus(probabilities: Tensor, p: float) -> Tensor:
    """Which tokens are in the smallest set of mass >= p; of equally likely ones the first are taken.

    A token is in when the tokens before it in falling order hold less than p.

    >>> nucleus(torch.tensor([[0.1, 0.5, 0.25, 0.15]]), 0.7)
    tensor([[False,  True,  True, False]])
    """
    falling = _falling(probabilities)
    before = falling[..., :-1].cumsum(dim=-1)
    size = 1 + (before < p).sum(dim=-1, keepdim=True)
    least = falling.gather(-1, size - 1)
    above = probabilities > least
    tied = probabilities == least
    room = size - above.sum(dim=-1, keepdim=True)
    return above | (tied & (tied.cumsum(dim=-1) <= room))


def draw(weights: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One index a row, with probability proportional to its weight; never one of weight 0.

    The index is the first whose cumulative weight exceeds u x total, u uniform in [0, 1).
    """
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[..., -1:]
    u = torch.rand(total.shape, generator=generator, device=weights.device)
    target = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1)


def _falling(probabilities: Tensor) -> Tensor:
    """Each row sorted from large to small.

    NumPy's vectorised sort of bare values takes 0.4 ms for 128 Ki floats on one AVX-512 core where
    torch.sort, which carries indices along, takes over 10 ms.
    """
    if probabilities.is_cpu and not torch.compiler.is_compiling():
        rising = np.sort(probabilities.numpy(), axis=-1)
        return torch.from_numpy(rising).flip(-1)
    return torch.sort(probabilities, dim=-1, descending=True).values
