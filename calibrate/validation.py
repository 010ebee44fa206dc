"""How far forecasts are from runs the fit did not see, and how wide an honest interval must be.

Three schemes: shapes held out from the start; each shape left out in turn; each context left out in
turn. An 80 % interval is taken from the log ratios of all runs judged by a fit without their shape, and
its coverage is what such an interval, made without a shape, holds of that shape's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roofcast.calibrate.fit import Fitted
from roofcast.calibrate.fitting import Errors
from roofcast.calibrate.overheads import Runs, forecast_s
from roofcast.hardware.profile import Band, HeldOut
from roofcast.simulator.workload import Array

COVERAGE = 0.8

Fitter = Callable[[Fitted, Sequence[Runs]], Fitted]
"""Adds to a profile that knows its kernels what decode runs say."""


@dataclass(frozen=True)
class Judged:
    """Log ratios measured / forecast of runs, under a fit that hadn't seen them."""

    scheme: str
    runs: tuple[Runs, ...]
    log_ratios: tuple[Array, ...]

    @property
    def all(self) -> Array:
        """Every log ratio."""
        return np.concatenate(self.log_ratios) if self.log_ratios else np.zeros(0)

    def summary(self) -> HeldOut:
        """Errors, and how often an interval made from the other shapes holds."""
        errors = Errors.of(self.all)
        return HeldOut(
            scheme=self.scheme,
            runs=errors.rows,
            median_ape=errors.median_ape,
            p90_ape=errors.p90_ape,
            signed_median=errors.signed_median,
            coverage=coverage(self.log_ratios),
        )


def validate(kernels: Fitted, runs: Sequence[Runs], fitter: Fitter) -> tuple[Judged, ...]:
    """Judge the fit three ways; schemes that the runs don't allow are left out.

    `kernels` knows the kernel parameters, no overheads.
    """
    seen = [entry for entry in runs if not entry.held_out]
    unseen = [entry for entry in runs if entry.held_out]
    found = []
    if seen and unseen:
        fitted = fitter(kernels, seen)
        found.append(Judged("held-out models", tuple(unseen), _ratios(fitted, unseen)))
    if len(runs) > 2:
        found.append(_leave_one_model_out(kernels, runs, fitter))
    contexts = sorted({float(c) for entry in runs for c in entry.context})
    if len(contexts) > 2:
        found.append(_leave_one_context_out(kernels, runs, contexts, fitter))
    return tuple(found)


def _leave_one_model_out(kernels: Fitted, runs: Sequence[Runs], fitter: Fitter) -> Judged:
    ratios: list[Array] = []
    for left in runs:
        fitted = fitter(kernels, [entry for entry in runs if entry is not left])
        ratios += _ratios(fitted, [left])
    return Judged("leave-one-model-out", tuple(runs), tuple(ratios))


def _leave_one_context_out(
    kernels: Fitted, runs: Sequence[Runs], contexts: Sequence[float], fitter: Fitter
) -> Judged:
    judged: list[Runs] = []
    ratios: list[Array] = []
    for context in contexts:
        rest = _select(runs, context, inside=False)
        left = _select(runs, context, inside=True)
        if rest:
            judged += left
            ratios += _ratios(fitter(kernels, rest), left)
    return Judged("leave-one-context-out", tuple(judged), tuple(ratios))


def _select(runs: Sequence[Runs], context: float, *, inside: bool) -> list[Runs]:
    chosen = [entry.where((entry.context == context) == inside) for entry in runs]
    return [entry for entry in chosen if entry.size]


def _ratios(fitted: Fitted, runs: Sequence[Runs]) -> tuple[Array, ...]:
    return tuple(
        np.log(entry.measured_s / forecast_s(entry, fitted.device, fitted.profile))
        for entry in runs
    )


def interval(log_ratios: Array) -> tuple[float, float]:
    """The 80 % interval of log ratios: order statistics that hold for a new one of the same kind.

    Ranks floor(0.1 (n + 1)) and ceil(0.9 (n + 1)), the split conformal quantiles (Lei et al.,
    JASA 113, 2018); the extremes where there are too few.

    >>> interval(np.arange(1.0, 100.0))
    (10.0, 90.0)
    """
    ordered = np.sort(log_ratios)
    tail = (1 - COVERAGE) / 2
    low = max(int(np.floor(tail * (ordered.size + 1) + 1e-9)), 1)
    high = min(int(np.ceil((1 - tail) * (ordered.size + 1) - 1e-9)), ordered.size)
    return float(ordered[low - 1]), float(ordered[high - 1])


def coverage(groups: Sequence[Array]) -> float | None:
    """Share of log ratios inside the interval that the other groups give; None of fewer than 3."""
    if len(groups) < 3:
        return None
    inside = total = 0
    for index, group in enumerate(groups):
        others = np.concatenate([other for i, other in enumerate(groups) if i != index])
        low, high = interval(others)
        inside += int(np.sum((group >= low) & (group <= high)))
        total += group.size
    return inside / total


def band(judged: Sequence[Judged]) -> Band | None:
    """The interval of forecasts, from the runs that were judged without their own shape."""
    for wanted in ("leave-one-model-out", "held-out models", "leave-one-context-out"):
        for entry in judged:
            if entry.scheme == wanted and entry.all.size >= 5:
                low, high = interval(entry.all)
                origin = f"80 % of {entry.all.size} decode runs, {wanted}"
                return Band(min(low, 0.0), max(high, 0.0), origin)
    return None
