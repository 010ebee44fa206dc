"""Figures on fixed data, for image tests. `python -m tests.reports.baselines` redraws them.

Nothing here depends on a fitted profile, so an image changes only when the drawing does. Look at a
redrawn baseline before committing it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from roofcast.hardware.catalog import find
from roofcast.reports import figure_data, heat_data
from roofcast.reports.audit_rows import AuditBar
from roofcast.reports.figure_data import Comparison, Line
from roofcast.reports.figures import (
    accuracy,
    bars,
    curves,
    deployments,
    gains,
    heatmap,
    reply,
    roofline,
    serving,
    sheet,
    style,
    tradeoffs,
    waterfall,
)
from roofcast.reports.figures.deployments import Deployments
from roofcast.reports.figures.gains import GainBar
from roofcast.reports.figures.serving import Latencies, Series
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.comparison import TensorCurve, Tradeoff
from roofcast.simulator.models import from_fields
from tests.reports.conftest import LLAMA_8B, PROFILE

FOLDER = Path(__file__).with_name("baseline")
DPI = 72
BATCHES = 2.0 ** np.arange(10)


def where() -> Setup:
    """Llama-3.1-8B on an H100 under a profile made for tests."""
    return setup(from_fields(LLAMA_8B, name="llama-8b"), find("h100-sxm"), profile=PROFILE)


def draw_roofline(scale: float = 1.0) -> Figure:
    """`scale` moves what is drawn, to see whether a comparison notices."""
    figure, (axes,) = sheet.sheet("Roofline", "fixed profile")
    data = figure_data.roofline(
        where().decode(np.round(np.array([1.0, 16.0, 128.0]) * scale**2), 4096)
    )
    roofline.draw(axes, data)
    return figure


def draw_throughput(scale: float = 1.0) -> Figure:
    """Tokens/s by batch."""
    figure, (axes,) = sheet.sheet("Throughput", "fixed profile")
    lines = [
        figure_data.tokens_by_batch(where().decode(BATCHES, round(c * scale)), f"{c} context")
        for c in (1024, 8192)
    ]
    curves.throughput(axes, lines)
    return figure


def draw_latency(scale: float = 1.0) -> Figure:
    """Step time by context."""
    figure, (axes,) = sheet.sheet("Latency", "fixed profile")
    contexts = 2.0 ** np.arange(7, 16)
    lines = [
        figure_data.latency_by_context(where().decode(round(b * scale), contexts), f"batch {b}")
        for b in (10, 40)
    ]
    curves.latency(axes, lines)
    return figure


def draw_breakdown(scale: float = 1.0) -> Figure:
    """Causes of two steps."""
    figure, (axes,) = sheet.sheet("Breakdown", "fixed profile")
    forecast = where().decode(np.array([1.0, 64.0]), round(4096 * scale))
    bars.draw(axes, figure_data.breakdown(forecast, ["batch 1", "batch 64"]))
    return figure


def draw_reply(scale: float = 1.0) -> Figure:
    """A reply as its cache grows."""
    figure, (axes,) = sheet.sheet("Reply", "fixed profile")
    first = round(2000 * scale)
    reply.draw(axes, figure_data.growth(where().decode(64, np.arange(first, first + 4000.0))))
    return figure


def draw_accuracy(scale: float = 1.0) -> Figure:
    """Forecast over measured, and errors."""
    figure, (left, right) = sheet.sheet("Accuracy", "made up", panels=2, size_in=(9.6, 4.6))
    measured = np.array([0.01, 0.02, 0.05, 0.1])
    groups = [
        Comparison("unseen", measured, measured * [1.1 * scale, 0.9, 1.0, 1.04], held_out=True),
        Comparison("seen", measured * 1.3, measured * 1.3 * 1.01, held_out=False),
    ]
    accuracy.draw(left, groups, PROFILE.band)
    accuracy.residuals(right, groups, PROFILE.band)
    return figure


def draw_heatmap(scale: float = 1.0) -> Figure:
    """What bounds a step over batch and context; `scale` shifts the contexts."""
    figure, (axes,) = sheet.sheet("Bounds", "fixed profile")
    data = heat_data.heat(where())
    moved = np.roll(data.region, round(20 * (scale - 1)), axis=1)
    rates, limit = data.tokens_per_s * scale**2, data.limit / scale**2
    heatmap.draw(axes, replace(data, region=moved, tokens_per_s=rates, limit=limit))
    return figure


def draw_measured(scale: float = 1.0) -> Figure:
    """Operators at the batches that were measured, and the measured steps."""
    figure, (axes,) = sheet.sheet("Measured steps", "fixed profile")
    batches, seconds = np.round(np.array([4.0, 64.0]) * scale**2), (9e-3, 12e-3)
    steps = [
        figure_data.measured_step(where().decode(batch, 2048), measured_s)
        for batch, measured_s in zip(batches, seconds, strict=True)
    ]
    data = figure_data.roofline(where().decode(batches, 2048))
    roofline.draw(axes, replace(data, measured=tuple(steps)))
    return figure


def draw_fronts(scale: float = 1.0) -> Figure:
    """The Pareto fronts of two devices."""
    figure, (axes,) = sheet.sheet("Trade-offs", "made up")
    batch = 2 ** np.arange(9)
    found = []
    for name, fast, tensor in (("alpha", 150.0, 1), ("beta", 210.0 * scale, 2)):
        users = fast / (1 + batch / 64 * scale)
        ranks = np.full(batch.size, tensor)
        found.append(Tradeoff(name, users, users * batch / tensor, ranks, batch))
    tradeoffs.fronts(axes, found)
    return figure


def draw_cost(scale: float = 1.0) -> Figure:
    """Cost over batch, one device with less memory than the other."""
    figure, (axes,) = sheet.sheet("Cost", "made up")
    lines = []
    for name, hourly, limit in (("alpha", 2.0, 128), ("beta", 4.0 * scale, 512)):
        x = BATCHES[: int(np.log2(limit)) + 1]
        usd = hourly / (150 * x / (1 + x / 64) * 3600) * 1e6
        lines.append(Line(name, x, usd, float(limit)))
    curves.throughput(axes, lines, "USD per million output tokens")
    return figure


def draw_tensor(scale: float = 1.0) -> Figure:
    """Speed over tensor ranks."""
    figure, (axes,) = sheet.sheet("Tensor ranks", "made up")
    ranks = np.array([1, 2, 4, 8])
    step = 1e-2 / ranks ** (0.8 / scale) + 1e-3
    share, gives = ranks / 40.0, np.array([1000.0, 1100.0, 1000.0, 700.0 / scale])
    curve = TensorCurve(ranks, step, share, np.full(4, 256), gives, share)
    tradeoffs.tensor(axes, curve)
    return figure


def _bars(scale: float) -> list[AuditBar]:
    parts = ("weights", "kv_cache", "activations", "compute")
    parts += ("launch_and_host", "collectives", "prefill_interference", "unexplained")
    made = []
    for name, batch in (("batch 1", 1.0), ("batch 64", 64.0)):
        seconds = np.array([5e-3, 5e-5 * batch, 1e-5 * batch, 0, 1e-3, 5e-4, 1e-3, 2e-3 * scale**3])
        made.append(AuditBar(name, dict(zip(parts, seconds, strict=True)), 4.5e-3, 7e-3))
    return made


def draw_waterfall(scale: float = 1.0) -> Figure:
    """Where the time of one measured step went."""
    figure, (axes,) = sheet.sheet("Waterfall", "made up", left_in=1.35, size_in=(7.2, 3.6))
    waterfall.draw(axes, _bars(scale)[1])
    return figure


def draw_audited(scale: float = 1.0) -> Figure:
    """Where the time of several measured steps went."""
    figure, (axes,) = sheet.sheet("Audited", "made up", left_in=1.35, size_in=(7.2, 3.6))
    waterfall.stack(axes, _bars(scale))
    return figure


def draw_gains(scale: float = 1.0) -> Figure:
    """Gains within, below and beyond what a change can bring."""
    figure, (axes,) = sheet.sheet("Gains", "made up", left_in=1.35, size_in=(7.2, 3.2))
    bars = [
        GainBar("batch 1", 0.04 * scale, 0.02 * scale, 0.06 * scale, 0.05, 0.09 * scale),
        GainBar("batch 8", 0.10, 0.08, 0.12, 0.22 * scale, 0.30),
        GainBar("batch 64", 0.55 * scale, 0.50 * scale, 0.60 * scale, 0.30, 0.40),
    ]
    gains.draw(axes, bars)
    return figure


def draw_deployments(scale: float = 1.0) -> Figure:
    """Deployments of two devices, and the objective."""
    figure, (axes,) = sheet.sheet("Deployments", "made up")
    speed = np.array([30.0, 42.0, 60.0, 95.0])
    groups = [
        Deployments("4 x alpha\n4 x 1 device", speed, 0.01 * speed * scale**2, 0),
        Deployments("2 x beta\n1 x 2 devices", speed * 1.3 * scale, 0.3 + 0.004 * speed, 1),
    ]
    deployments.draw(axes, groups, "USD per million output tokens", 20.0 * scale)
    return figure


def draw_served(scale: float = 1.0) -> Figure:
    """A served trace: requests over time, cache, and how latencies are spread."""
    figure, (left, middle, right) = sheet.sheet("Served", "made up", panels=3, size_in=(14.0, 4.2))
    time_s = np.linspace(0.0, 60.0, 121)
    running = 30 * (1 - np.exp(-time_s / 10 * scale**2))
    waiting = 12 * np.exp(-(((time_s - 30 * scale) / 8) ** 2))
    series = [Series("running", time_s, running), Series("waiting", time_s, waiting)]
    serving.counts(left, series)
    serving.cache(middle, time_s, running / 40 * scale)
    seconds = 0.02 * scale**2 * np.exp(np.linspace(-1.5, 1.5, 200))
    serving.spread(right, Latencies("time per output token", seconds, 0.05))
    return figure


DRAWINGS: Mapping[str, Callable[[float], Figure]] = {
    "roofline": draw_roofline,
    "measured": draw_measured,
    "throughput": draw_throughput,
    "latency": draw_latency,
    "heatmap": draw_heatmap,
    "breakdown": draw_breakdown,
    "reply": draw_reply,
    "accuracy": draw_accuracy,
    "fronts": draw_fronts,
    "cost": draw_cost,
    "tensor": draw_tensor,
    "waterfall": draw_waterfall,
    "audited": draw_audited,
    "gains": draw_gains,
    "deployments": draw_deployments,
    "served": draw_served,
}


def write(name: str, path: Path, scale: float = 1.0) -> Path:
    """Draw one figure into a small PNG."""
    with style.applied():
        DRAWINGS[name](scale).savefig(path, dpi=DPI)
    return path


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in sys.argv[1:] or DRAWINGS:
        sys.stdout.write(f"{write(each, FOLDER / f'{each}.png')}\n")
