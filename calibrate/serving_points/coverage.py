"""Which held-out points an interval would have held that knew nothing of their group.

The interval shipped for a device is the middle of its held-out errors. Judged on those same errors it
holds 80 % or more whatever they are; so here each group of points is judged by the interval that the
other groups give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.serving_points.bands import measured_band
from roofcast.simulator.workload import Array

ENOUGH_ROWS: Final = 40
ENOUGH_GROUPS: Final = 3
"""From how many held-out rows and groups on a device has intervals of its own."""


def intervals(
    ratios: Array,
    devices: Sequence[str],
    groups: Sequence[str],
    counted: NDArray[np.bool_],
) -> tuple[Array, Array]:
    """Ends of each row's 80 % interval, as log ratios measured / forecast, from other groups' rows.

    Rows of the same device give it where enough of them are `counted`, else rows of all devices.
    """
    where, labels = np.asarray(devices), np.asarray(groups)
    low, high = np.full(ratios.shape, -np.inf), np.full(ratios.shape, np.inf)
    for group in np.unique(labels):
        own = labels == group
        others = ~own & np.isfinite(ratios) & counted
        near = others & np.isin(where, where[own])
        rows = near if enough(near, labels) else others
        if rows.any():
            band = measured_band(ratios[rows], list(labels[rows]), "")
            low[own], high[own] = band.low, band.high
    return low, high


def enough(rows: NDArray[np.bool_], groups: NDArray[np.str_]) -> bool:
    """Whether rows are enough for an interval of their own."""
    return bool(rows.sum() >= ENOUGH_ROWS and np.unique(groups[rows]).size >= ENOUGH_GROUPS)
