"""How far forecasts were from what was measured: percentages, sign and the share an interval held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of forecasts, as fractions; `coverage` is the share within 80 % intervals, NaN without."""

    rows: int
    signed_median: float
    median_ape: float
    mean_ape: float
    p90_ape: float
    coverage: float

    @classmethod
    def of(cls, rows: Iterable[tuple[float | None, ...]]) -> Errors:
        """From rows of measured, predicted, low and high.

        >>> errors = Errors.of([(1.0, 1.1, 1.0, 1.2), (1.0, 0.7, 0.6, 0.8)])
        >>> round(errors.mean_ape, 3), errors.coverage
        (0.2, 0.5)
        """
        table = np.array(list(rows), dtype=float).reshape(-1, 4)
        if not table.size:
            return cls(0, *[float("nan")] * 5)
        measured, predicted, low, high = table.T
        signed = predicted / measured - 1.0
        held = (measured >= low) & (measured <= high)
        known = np.isfinite(low).any() or np.isfinite(high).any()
        return cls(
            rows=len(table),
            signed_median=float(np.median(signed)),
            median_ape=float(np.median(np.abs(signed))),
            mean_ape=float(np.mean(np.abs(signed))),
            p90_ape=float(np.quantile(np.abs(signed), 0.9)),
            coverage=float(np.mean(held)) if known else float("nan"),
        )
