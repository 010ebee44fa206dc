"""What two visits of the same tasks say of the noise, and what it does to standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from roofcast.calibrate.fitting import Fit
from roofcast.calibrate.samples import Measurement, median

FEWEST: Final = 4
"""Tasks visited twice from which on their disagreement is told."""


def replication(measured: Sequence[Measurement]) -> float:
    """Standard deviation of a task's log median, from how far two visits of the same tasks differ.

    It holds what all residuals of a stage share and none shows: 0 without tasks enough to tell.
    """
    halves = [
        np.log(median(second) / median(first)) / 2.0
        for (_, first), (_, second) in (e.by_visit for e in measured if len(e.by_visit) == 2)
    ]
    return float(np.sqrt(np.mean(np.square(halves)))) if len(halves) >= FEWEST else 0.0


def no_surer_than(found: Fit, noise: float) -> Fit:
    """Standard errors raised to what data of that noise allows, if residuals happen to be smaller.

    Few measurements can agree by chance, or because they were all off alike.
    """
    rms = float(np.sqrt(np.mean(np.square(found.residuals))))
    if not noise > rms > 0.0:
        return found
    raised = tuple(
        each
        if each.standard_error is None
        else replace(each, standard_error=each.standard_error * noise / rms)
        for each in found.estimates
    )
    return replace(found, estimates=raised)
