"""Figures on fixed data, for image tests. `python -m tests.reports.baselines` redraws them.

Nothing here depends on a fitted profile, so an image changes only when the drawing does. Look at a
redrawn baseline before committing it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from roofcast.hardware.catalog import find
from roofcast.reports import figure_data
from roofcast.reports.figure_data import Comparison
from roofcast.reports.figures import accuracy, bars, curves, reply, roofline, sheet, style
from roofcast.simulator.api import Setup, setup
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


DRAWINGS: Mapping[str, Callable[[float], Figure]] = {
    "roofline": draw_roofline,
    "throughput": draw_throughput,
    "latency": draw_latency,
    "breakdown": draw_breakdown,
    "reply": draw_reply,
    "accuracy": draw_accuracy,
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
