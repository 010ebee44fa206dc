"""The answer first: what bounds each device, which is ahead, and whether the error bands can tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roofcast.reports import units, words
from roofcast.reports.document.blocks import Bullets, Section
from roofcast.reports.sections.cases import Case
from roofcast.simulator.prediction import Forecast


def section(cases: Sequence[Case]) -> Section:
    """One sentence a device, then how they compare at the largest point."""
    said = [sentence(case) for case in cases]
    if len(cases) > 1:
        said += [comparison(cases), *_engines(cases)]
    return Section("verdict", "Verdict", (Bullets(tuple(said)),))


def sentence(case: Case) -> str:
    """What holds decode back at the smallest point, how far batching pays, and what fits."""
    low, context = case.batches[0], case.contexts[0]
    bound = words.bound_at(case.points, 0)
    reach = f" at {words.sustained(case.points, 0)}" if bound == "memory-bound" else ""
    missing = int(np.sum(~np.broadcast_to(case.points.memory.fits, case.points.step_time_s.shape)))
    verb = "does" if missing == 1 else "do"
    total = case.points.step_time_s.size
    room = f" {missing} of {total} points {verb} not fit." if missing else ""
    return (
        f"{case.label}: at batch {low:,}, context {context:,}, {bound}{reach}, "
        f"{_rate(case.points, 0)}; {words.batching(case.batching)}.{room}"
    )


def comparison(cases: Sequence[Case]) -> str:
    """Who is ahead per device at the largest point that fits everywhere, and how sure that is."""
    index = _last_common(cases)
    if index is None:
        return "No point fits on every device, so nothing is compared."
    first = cases[0].points
    batch = np.ravel(np.broadcast_to(first.batch, first.step_time_s.shape))[index]
    context = np.ravel(np.broadcast_to(first.context, first.step_time_s.shape))[index]
    order = sorted(cases, key=lambda case: -per_device(case, index))
    ratios = ", ".join(
        f"{units.significant(per_device(order[0], index) / per_device(case, index), 2)} times that "
        f"of {case.label}"
        for case in order[1:]
    )
    return (
        f"At batch {batch:,.0f}, context {context:,.0f}, {order[0].label} gives the most tokens/s "
        f"per device: {units.significant(per_device(order[0], index))}, {ratios}. "
        f"{certainty(order, index)}"
    )


def certainty(order: Sequence[Case], index: int) -> str:
    """Whether the 80 % ranges of the best and the next one lie apart."""
    (best, _), (_, next_high) = (_range(case, index) for case in order[:2])
    if np.isnan(best) or np.isnan(next_high):
        return "Not every profile has an error band, so how sure that is cannot be said."
    if best > next_high:
        return "The 80 % ranges of the first two lie apart."
    return (
        f"The 80 % ranges of {order[0].label} and {order[1].label} overlap: the order may be the "
        "other way round in practice."
    )


def per_device(case: Case, index: int) -> float:
    """Tokens/s per device of one point."""
    return float(np.ravel(case.points.tokens_per_s_per_device)[index])


def _range(case: Case, index: int) -> tuple[float, float]:
    rate, points = per_device(case, index), case.points
    step, low, high = (
        float(np.ravel(values)[index])
        for values in (points.step_time_s, points.step_time_low_s, points.step_time_high_s)
    )
    return rate * step / high, rate * step / low


def _last_common(cases: Sequence[Case]) -> int | None:
    shape = cases[0].points.step_time_s.shape
    fits = [np.ravel(np.broadcast_to(case.points.memory.fits, shape)) for case in cases]
    common = np.flatnonzero(np.all(fits, axis=0))
    return int(common[-1]) if common.size else None


def _rate(points: Forecast, index: int) -> str:
    rate = float(np.ravel(points.tokens_per_s)[index])
    return f"{units.significant(rate)} tok/s"


def _engines(cases: Sequence[Case]) -> list[str]:
    names = list(dict.fromkeys(case.where.profile.engine for case in cases))
    if len(names) == 1:
        return []
    return [
        f"The profiles are of different engines ({', '.join(names)}): part of each difference is the "
        "engine's; --engine compares devices under one."
    ]
