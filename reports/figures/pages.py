"""Whole figures from forecasts: title and panels. The drawing is in the modules beside it.

A `*_figure` returns the figure, a `*_page` writes it as PNG and SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from roofcast.reports import figure_data, units, words
from roofcast.reports.figure_data import Line
from roofcast.reports.figures import accuracy, bars, curves, heatmap, reply, roofline, style
from roofcast.reports.figures.sheet import save, sheet
from roofcast.reports.heat_data import heat
from roofcast.simulator.api import Setup
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.trajectory import Trajectory

if TYPE_CHECKING:
    from roofcast.calibrate.calibration import Calibration


def roofline_figure(forecast: Forecast) -> Figure:
    """Operators on the roofline; the forecast's points differ in batch only."""
    context = units.tokens(float(np.ravel(forecast.context)[0]))
    with style.applied():
        figure, (axes,) = sheet(
            "A decode step on the roofline", _about(forecast, f"context {context}")
        )
        roofline.draw(axes, figure_data.roofline(forecast))
        return figure


def roofline_page(forecast: Forecast, stem: Path) -> list[Path]:
    """`roofline_figure` in files."""
    return save(roofline_figure(forecast), stem)


def throughput_figure(forecasts: Sequence[Forecast]) -> Figure:
    """Tokens/s over batch, a curve for each context; each forecast's points differ in batch only."""
    lines = [
        figure_data.tokens_by_batch(
            each, f"{units.tokens(float(np.ravel(each.context)[0]))} context"
        )
        for each in forecasts
    ]
    with style.applied():
        figure, (axes,) = sheet("Throughput by batch", _about(forecasts[0]))
        curves.throughput(axes, lines)
        return figure


def throughput_page(forecasts: Sequence[Forecast], stem: Path) -> list[Path]:
    """`throughput_figure` in files."""
    return save(throughput_figure(forecasts), stem)


def latency_figure(forecasts: Sequence[Forecast]) -> Figure:
    """Step time over context, a curve for each batch; each forecast's points differ in context only."""
    lines = [
        figure_data.latency_by_context(each, f"batch {np.ravel(each.batch)[0]:,.0f}")
        for each in forecasts
    ]
    with style.applied():
        figure, (axes,) = sheet("Latency by context", _about(forecasts[0]))
        curves.latency(axes, lines)
        return figure


def latency_page(forecasts: Sequence[Forecast], stem: Path) -> list[Path]:
    """`latency_figure` in files."""
    return save(latency_figure(forecasts), stem)


def heatmap_figure(where: Setup) -> Figure:
    """What bounds a step at every batch and context, and what fits."""
    about = _about(where.decode(1, 1))
    with style.applied():
        figure, (axes,) = sheet("What bounds a decode step", about)
        heatmap.draw(axes, heat(where))
        return figure


def heatmap_page(where: Setup, stem: Path) -> list[Path]:
    """`heatmap_figure` in files."""
    return save(heatmap_figure(where), stem)


def reply_figure(trajectory: Trajectory) -> Figure:
    """One reply as its cache grows."""
    title = f"A reply of {trajectory.output_tokens:,} tokens"
    with style.applied():
        figure, (axes,) = sheet(title, _about(trajectory.steps))
        reply.draw(axes, figure_data.growth(trajectory.steps))
        return figure


def reply_page(trajectory: Trajectory, stem: Path) -> list[Path]:
    """`reply_figure` in files."""
    return save(reply_figure(trajectory), stem)


def accuracy_figure(calibration: Calibration) -> Figure:
    """Measured against forecast, and the errors of those forecasts."""
    groups = figure_data.comparisons(calibration)
    with style.applied():
        figure, (left, right) = sheet(
            "Forecasts against measured decode steps",
            f"{calibration.profile.device}: {accuracy.errors(groups)}",
            panels=2,
            size_in=(9.6, 4.6),
        )
        accuracy.draw(left, groups, calibration.profile.band)
        accuracy.residuals(right, groups, calibration.profile.band)
        return figure


def accuracy_page(calibration: Calibration, stem: Path) -> list[Path]:
    """`accuracy_figure` in files."""
    return save(accuracy_figure(calibration), stem)


def comparison_figure(
    title: str, subtitle: str, panels: Sequence[tuple[str, Sequence[Line]]]
) -> Figure:
    """Tokens/s per device over batch, one panel a model, one curve a device."""
    with style.applied():
        figure, axes = sheet(title, subtitle, panels=len(panels), size_in=(5.0 * len(panels), 4.6))
        for panel, (name, lines) in zip(axes, panels, strict=True):
            curves.throughput(panel, lines, "output tokens/s per device")
            panel.text(0.02, 0.97, name, transform=panel.transAxes, va="top", weight="bold")
        return figure


def comparison_page(
    title: str, subtitle: str, panels: Sequence[tuple[str, Sequence[Line]]], stem: Path
) -> list[Path]:
    """`comparison_figure` in files."""
    return save(comparison_figure(title, subtitle, panels), stem)


def breakdown_figure(title: str, subtitle: str, data: Sequence[figure_data.Bar]) -> Figure:
    """Where the time of several steps goes."""
    with style.applied():
        widest = max(len(bar.name) for bar in data)
        figure, (axes,) = sheet(
            title, subtitle, left_in=0.35 + 0.068 * widest, size_in=(7.2, 1.9 + 0.34 * len(data))
        )
        bars.draw(axes, data)
        return figure


def breakdown_page(
    title: str, subtitle: str, data: Sequence[figure_data.Bar], stem: Path
) -> list[Path]:
    """`breakdown_figure` in files."""
    return save(breakdown_figure(title, subtitle, data), stem)


def _about(forecast: Forecast, *more: str) -> str:
    profile = forecast.profile
    by = "physical floor" if profile.engine == "ideal" else words.profile_name(profile)
    by, lent, _ = by.partition(", from ")  # a borrowed profile names all it is borrowed from
    parts = [
        f"{forecast.work.architecture.name} on {forecast.device.name}",
        words.layout(forecast.work.parallelism) if forecast.devices > 1 else "",
        *more,
        f"{by} (transferred)" if lent else by,
    ]
    return ", ".join(part for part in parts if part)
