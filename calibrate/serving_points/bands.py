"""The 80 % interval of a serving forecast, by metric: held-out errors, widened for strangers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from roofcast.hardware.profile import Band, Profile
from roofcast.simulator.workload import Array

NEAREST = 0.25
"""Log error added where another engine's profile stands in. Assumed."""
UNMEASURED = 0.4
"""Half width of the log interval where no band was ever measured. Assumed."""
_INVERSE = ("output_tok_s",)
_HELD, _MOST = 0.8, 0.98


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


def measured_band(log_ratios: Array, groups: Sequence[str], origin: str) -> Band:
    """The interval that should hold 80 % of log ratios measured / forecast of a new group.

    From n independent ratios it is the middle 80 % (1 + 1 / n) of them, between ratios that occurred
    (conformal prediction; Vovk, Gammerman and Shafer 2005). Rows of one group err alike, so that fewer
    count: see `independent`.
    """
    held = min(_HELD * (1.0 + 1.0 / independent(log_ratios, groups)), _MOST)
    low = np.quantile(log_ratios, (1.0 - held) / 2.0, method="lower")
    high = np.quantile(log_ratios, (1.0 + held) / 2.0, method="higher")
    return Band(float(min(low, -0.01)), float(max(high, 0.01)), origin)


def independent(log_ratios: Array, groups: Sequence[str]) -> float:
    """How many independent ratios these are worth: n / (1 + (m - 1) r), Kish's design effect.

    m is the mean size of a group weighted by size, r the share of the variance that lies between
    groups, of ranks so that outliers don't rule it. The variance of k group means is k / (k - 1) of
    what they show; one group alone shows nothing of it and counts once.

    >>> independent(np.array([0.1, 0.1, 0.5, 0.5]), ["a", "a", "b", "b"])
    2.0
    >>> independent(np.array([0.1, 0.2, 0.3, 0.4]), ["a", "a", "a", "a"])
    1.0
    """
    from scipy.stats import rankdata  # slow to import

    _, back, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    ranks = rankdata(log_ratios)
    total = float(np.var(ranks))
    means = np.bincount(back, ranks) / sizes
    between = float(np.average((means - ranks.mean()) ** 2, weights=sizes))
    shown = (sizes.size - 1) / sizes.size  # of the variance between groups (Bessel)
    share = min(between / (total * shown), 1.0) if total * shown > 0.0 else 1.0
    mean_size = float(np.average(sizes, weights=sizes))
    return float(ranks.size / (1.0 + (mean_size - 1.0) * share))
