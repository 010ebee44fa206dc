"""Figures of a simulation: its state over time, and its latencies."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from roofcast.calibrate.served_runs import Counts, MeasuredRun
from roofcast.reports import units
from roofcast.reports.figures import serving, style
from roofcast.reports.figures.serving import Latencies, Series
from roofcast.reports.figures.sheet import save, sheet
from roofcast.simulator.scenario import Outcome
from roofcast.simulator.serving_stats import over_time

_SIZE_IN = (10.4, 4.2)


def serving_page(
    outcome: Outcome, stem: Path, counts: Counts | None = None, run: MeasuredRun | None = None
) -> list[Path]:
    """`stem`-state and `stem`-latency, PNG and SVG each; measured curves beside where given."""
    return [
        *state_page(outcome, stem.with_name(f"{stem.name}-state"), counts),
        *latency_page(outcome, stem.with_name(f"{stem.name}-latency"), run),
    ]


def state_page(outcome: Outcome, stem: Path, counts: Counts | None = None) -> list[Path]:
    """Running and waiting requests, and the cache, over time."""
    windows = over_time(outcome.served, 240)
    series = []
    for name in ("running", "waiting"):
        measured = {}
        if counts is not None:
            measured = {"measured_time_s": counts.time_s, "measured": getattr(counts, name)}
        series.append(Series(name, windows.time_s, getattr(windows, name), **measured))
    with style.applied():
        figure, (left, right) = sheet(
            "Requests and cache over time", _about(outcome), panels=2, size_in=_SIZE_IN
        )
        serving.counts(left, series)
        serving.cache(right, windows.time_s, windows.kv_use)
        return save(figure, stem)


def latency_page(outcome: Outcome, stem: Path, run: MeasuredRun | None = None) -> list[Path]:
    """Time to first token and time per output token, over requests."""
    served, goals = outcome.served, outcome.scenario.objectives
    real = {} if run is None else run.metrics
    shown = [
        Latencies("time to first token", served.ttft_s, goals.ttft_s, real.get("ttft_s")),
        Latencies("time per output token", served.tpot_s, goals.tpot_s, real.get("tpot_s")),
    ]
    shown = [each for each in shown if not np.all(np.isnan(each.seconds))]
    with style.applied():
        figure, axes = sheet(
            "What requests wait for", _about(outcome), panels=len(shown), size_in=_SIZE_IN
        )
        for panel, each in zip(axes, shown, strict=True):
            serving.spread(panel, each)
        return save(figure, stem)


def _about(outcome: Outcome) -> str:
    where, summary = outcome.simulation.where, outcome.summary
    return (
        f"{where.architecture.name} on {where.device.name}, {summary.requests:,} requests, "
        f"{units.significant(summary.output_tokens_per_s)} output tokens/s"
    )
