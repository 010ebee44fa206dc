"""A machine that drifts, made steady: what was measured while it was slow counts as if it had not been.

The reference kernel is read every few seconds between all others. Where it takes 5 % longer than in the
median of the whole calibration, so did everything else that reads memory, and its samples are divided
by 1.05. The pace is smoothed over half a minute: what changes faster is noise, and reads of the
reference say nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.fit import Fitted
from roofcast.calibrate.plan import REFERENCE
from roofcast.calibrate.samples import Measurement

SMOOTHED_S: Final = 30.0
"""Standard deviation of the window over which the pace is taken."""
FEWEST_TURNS: Final = 10
PARTS: Final = 5


def steadied(measured: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """The measurements at the machine's median pace; as they are without reference turns enough."""
    at_s, seconds = _turns(measured)
    if at_s.size < FEWEST_TURNS:
        return tuple(measured)
    return tuple(
        entry if entry.kind == REFERENCE else _at_one_pace(entry, at_s, seconds)
        for entry in measured
    )


def wandering(measured: Sequence[Measurement]) -> float:
    """Standard deviation of the logarithm of the reference's median over fifths of a calibration."""
    _, seconds = _turns(measured)
    if seconds.size < FEWEST_TURNS:
        return 0.0
    parts = np.array_split(np.log(seconds), PARTS)
    return float(np.std([np.median(part) for part in parts], ddof=1))


def with_drift(fitted: Fitted, measured: Sequence[Measurement]) -> Fitted:
    """Widen every standard error by how far the machine wandered while it was measured.

    A machine that is slower for minutes slows all its kernels, which no scatter around a fit shows.
    Such wandering does not average out: the mean of a whole run is about as uncertain as the means of
    its fifths differ, as under flicker noise (Allan, Proc. IEEE 54, 1966). The reference kernel tells.
    """
    wander = wandering(measured)
    parameters = {
        name: known
        if known.standard_error is None
        else replace(
            known, standard_error=float(np.hypot(known.standard_error, wander * known.value))
        )
        for name, known in fitted.profile.parameters.items()
    }
    return replace(fitted, profile=replace(fitted.profile, parameters=parameters))


def _turns(measured: Sequence[Measurement]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When the reference was read, in order, and how long it took."""
    turns = sorted((e.at_s, e.median_s) for e in measured if e.kind == REFERENCE and e.samples_s)
    found = np.array(turns, dtype=np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _at_one_pace(
    entry: Measurement, at_s: NDArray[np.float64], seconds: NDArray[np.float64]
) -> Measurement:
    samples: list[float] = []
    for ended_s, own in entry.by_visit:
        pace = _pace(ended_s, at_s, seconds)
        samples += [sample / pace for sample in own]
    return replace(entry, samples_s=tuple(samples))


def _pace(moment: float, at_s: NDArray[np.float64], seconds: NDArray[np.float64]) -> float:
    """The reference around a moment, a weighted median, over its median."""
    weights = np.exp(-0.5 * ((at_s - moment) / SMOOTHED_S) ** 2)
    if not weights.sum() > 0.0:  # a moment far from all turns
        return 1.0
    order = np.argsort(seconds)
    place = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2.0)
    return float(seconds[order][min(place, seconds.size - 1)] / np.median(seconds))
