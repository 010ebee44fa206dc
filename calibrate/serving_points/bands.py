"""The 80 % interval of a serving forecast, by metric: held-out errors, widened for strangers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from roofcast.hardware.profile import Band, Profile

NEAREST = 0.25
"""Log error added where another engine's profile stands in. Assumed."""
UNMEASURED = 0.4
"""Half width of the log interval where no band was ever measured. Assumed."""
_INVERSE = ("output_tok_s",)


def factor(profile: Profile, metric: str, nearest: bool) -> tuple[float, float]:
    """What to multiply a forecast with for the ends of its interval.

    >>> low, high = factor(Profile("p", "d", "vllm", ""), "tpot_ms", False)
    >>> round(low, 2), round(high, 2)
    (0.67, 1.49)
    """
    band = _band(profile, metric)
    low, high = (-UNMEASURED, UNMEASURED) if band is None else (band.low, band.high)
    if nearest:
        low, high = -math.hypot(low, NEAREST), math.hypot(high, NEAREST)
    return math.exp(low), math.exp(high)


def _band(profile: Profile, metric: str) -> Band | None:
    found = profile.bands.get(metric)
    if found is None and metric in _INVERSE:
        times = profile.bands.get("e2e_s") or profile.bands.get("tpot_ms")
        found = None if times is None else Band(-times.high, -times.low, times.origin)
    if found is None:
        found = profile.bands.get("tpot_ms") or profile.band
    return found


def measured_band(log_ratios: Sequence[float], origin: str) -> Band:
    """The interval that holds 80 % of log ratios measured / forecast."""
    low, high = np.quantile(np.asarray(log_ratios, dtype=float), (0.1, 0.9))
    return Band(float(min(low, -0.01)), float(max(high, 0.01)), origin)
