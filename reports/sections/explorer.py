"""The interactive view: every device over a grid of batches and contexts, computed beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roofcast.reports.document.blocks import Explorer, Section
from roofcast.reports.sections.cases import Case, many_batches, many_contexts
from roofcast.simulator.api import grid
from roofcast.simulator.prediction import CAUSES
from roofcast.simulator.workload import Array

_DIGITS = 4


def section(cases: Sequence[Case]) -> Section:
    """Grids of all cases, the sliders at the middle of what was asked for."""
    batches, contexts = many_batches(cases[0]), many_contexts(cases[0])
    data = {
        "batches": batches.astype(int).tolist(),
        "contexts": contexts.astype(int).tolist(),
        "devices": [_device(case, batches, contexts) for case in cases],
    }
    at = Explorer(
        data,
        _index(batches, cases[0].batches[-1]),
        _index(contexts, cases[0].contexts[0]),
    )
    return Section("explore", "Explore", (at,))


def _index(values: Array, wanted: float) -> int:
    return int(np.flatnonzero(values == wanted)[0])


def _device(case: Case, batches: Array, contexts: Array) -> dict[str, Any]:
    """One device's grids, rows of batches; null where something is unknown."""
    forecast = case.where.decode(*grid(batches, contexts))
    shape = forecast.step_time_s.shape

    def rounded(values: Array) -> list[list[float | None]]:
        return [[_rounded(value) for value in row] for row in np.broadcast_to(values, shape)]

    return {
        "label": case.label,
        "devices": case.devices,
        "step_s": rounded(forecast.step_time_s),
        "low_s": rounded(forecast.step_time_low_s),
        "high_s": rounded(forecast.step_time_high_s),
        "causes_s": {cause: rounded(forecast.causes[cause]) for cause in CAUSES},
        "bound": np.broadcast_to(forecast.bound, shape).tolist(),
        "memory_bytes": rounded(forecast.memory.total_bytes),
        "fits": np.broadcast_to(forecast.memory.fits, shape).tolist(),
    }


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.{_DIGITS}g}")
