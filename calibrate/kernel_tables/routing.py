"""How many experts of the measured rank a table's rows touch, and how many tokens reach them.

The tables name a distribution. ``balanced`` spreads the tokens as evenly as they go. ``power_law_A``
draws every expert's share from a bounded power law with exponent A, rounds the counts and measures the
rank that got most: collector/helper.py of ai-dynamo/aiconfigurator (Apache-2.0),
_generate_power_law_distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.kernel_tables.table import Table
from roofcast.simulator.workload import Array

_DRAWS: Final = 20
_SKEWED: Final = "power_law_"


def expert_load(table: Table) -> tuple[Array, Array]:
    """Distinct experts touched and tokens routed on the measured rank, for every row.

    >>> row = {"tokens": 4, "experts": 8, "topk": 2, "ep": 2}
    >>> columns = {name: np.array([float(value)]) for name, value in row.items()}
    >>> touched, routed = expert_load(Table({**columns, "distribution": np.array(["balanced"])}))
    >>> float(touched[0]), float(routed[0])
    (4.0, 4.0)
    """
    tokens, count, top_k, ranks = (table[name] for name in ("tokens", "experts", "topk", "ep"))
    routed = np.maximum(tokens * top_k / ranks, 1.0)
    touched = np.minimum(count / ranks, routed)
    for name in table.distinct("distribution"):
        if name.startswith(_SKEWED):
            rows = np.flatnonzero(table["distribution"] == name)
            exponent = float(name.removeprefix(_SKEWED))
            _skew(table, rows, exponent, (touched, routed))
    return touched, routed


def _skew(
    table: Table, rows: NDArray[np.intp], exponent: float, results: tuple[Array, Array]
) -> None:
    """Fill in the rows of one power law; equal cases are drawn once."""
    cases = np.stack([table[name][rows] for name in ("tokens", "experts", "topk", "ep")], axis=1)
    distinct, which = np.unique(cases, axis=0, return_inverse=True)
    loads = np.array([power_law_load(case, exponent) for case in distinct])
    for result, values in zip(results, loads.T, strict=True):
        result[rows] = values[which.ravel()]


def power_law_load(case: Sequence[float], exponent: float) -> tuple[float, float]:
    """Mean over draws of (experts touched, tokens routed) on the rank that got most.

    A case is (tokens, experts, top k, ranks).
    """
    tokens, count, top_k, ranks = (int(value) for value in case)
    random = np.random.default_rng(0)
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > count else (0.01, 2.0)
    power = 1.0 - exponent
    uniform = random.random((_DRAWS, count))
    drawn = ((high**power - low**power) * uniform + low**power) ** (1.0 / power)
    wanted = drawn / drawn.sum(axis=1, keepdims=True) * (tokens * top_k)
    counts = np.minimum(np.round(wanted), tokens)
    short = tokens * top_k - counts.sum(axis=1)
    _level(counts, short, tokens)
    by_rank = counts.reshape(_DRAWS, ranks, count // ranks)
    busiest = by_rank[np.arange(_DRAWS), by_rank.sum(axis=2).argmax(axis=1)]
    touched, routed = (busiest > 0).sum(axis=1).mean(), busiest.sum(axis=1).mean()
    return max(float(touched), 1.0), max(float(routed), 1.0)


def _level(counts: Array, short: Array, most: int) -> None:
    """Give what rounding left over to the emptiest experts, take what is too much from the fullest."""
    for row, missing in zip(counts, short, strict=True):
        order = np.argsort(row, kind="stable")
        left = int(missing)
        while left:
            step = 1 if left > 0 else -1
            open_ = order[row[order] < most] if step > 0 else order[::-1][row[order[::-1]] > 0]
            chosen = open_[: abs(left)]
            if not len(chosen):
                return
            row[chosen] += step
            left -= step * len(chosen)
