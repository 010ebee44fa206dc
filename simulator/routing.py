"""Which experts a batch touches: expected distinct experts under uniform and skewed routing."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def popularity(count: int, top_k: float, skew: float) -> Array:
    """Chance that a token uses each expert: proportional to rank^-skew, at most 1, summing to top_k.

    The cap matters for steep skews: an expert every token uses is used once a token, and what it
    can't take goes to the others in proportion.
    """
    weights = np.arange(1, count + 1, dtype=np.float64) ** -skew
    chance = top_k * weights / weights.sum()
    capped = np.zeros(count, dtype=bool)
    while np.any(chance > 1.0 + 1e-12):
        capped |= chance >= 1.0
        rest = top_k - capped.sum()
        chance = np.where(capped, 1.0, rest * weights / weights[~capped].sum())
    return chance


def distinct_experts(count: int, top_k: float, tokens: ArrayLike, skew: float = 0.0) -> Array:
    """Expected number of different experts that `tokens` independent tokens touch.

    Uniform routing: E (1 - (1 - k/E)^T). Skewed: the sum over experts of 1 - (1 - p)^T.

    >>> distinct_experts(8, 2, [1, 2, 1000]).round(3).tolist()
    [2.0, 3.5, 8.0]
    """
    drawn = np.asarray(tokens, dtype=np.float64)
    if skew == 0.0:
        touched: Array = -count * np.expm1(drawn * np.log1p(-min(top_k / count, 1 - 1e-15)))
        return touched
    chance = np.minimum(popularity(count, top_k, skew), 1 - 1e-15)
    missed = np.exp(drawn[..., np.newaxis] * np.log1p(-chance))
    total: Array = (1.0 - missed).sum(axis=-1)
    return total


def busiest(mean: ArrayLike, variance: ArrayLike, ranks: int) -> Array:
    """Expected load of the busiest of `ranks` that share work at random: mean + c x deviation.

    Every layer waits for it. c is the expected largest of so many normal deviates, by Blom's formula
    (Statistical Estimates and Transformed Beta-Variables, 1958).

    >>> busiest(10.0, 4.0, 1).tolist(), busiest(10.0, 4.0, 8).round(2).tolist()  # c(8) = 1.42
    (10.0, 12.87)
    """
    centre = np.asarray(mean, dtype=np.float64)
    if ranks == 1:
        return centre
    largest = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return centre + largest * np.sqrt(np.maximum(variance, 0.0))
