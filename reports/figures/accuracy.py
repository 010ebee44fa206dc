"""Measured against forecast: how far a profile is from runs, those it never saw above all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from roofcast.hardware.profile import Band
from roofcast.reports import units
from roofcast.reports.figure_data import Array, Comparison
from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, label_line, place


def draw(axes: Axes, groups: Sequence[Comparison], band: Band | None = None) -> None:
    """Forecast over measured step time; held-out runs filled, runs of the fit hollow.

    On the diagonal a forecast is right; the band holds 80 % of the runs it was made from.
    """
    factor, _ = _unit(groups)
    low, high = _frame(axes, groups)
    ends = np.array([low, high])
    if band is not None:
        _shade(axes, ends, ends / np.exp(band.high), ends / np.exp(band.low))
    axes.plot(ends, ends, color=style.QUIET, linewidth=1.0, zorder=2)
    for group, colour, marker in _looks(groups):
        _dots(axes, group, group.forecast_s * factor, factor, (colour, marker))
    name = Label("forecast = measured", 0, 0, style.QUIET, style.SMALL)
    label_line(axes, name, ((low, low), (high, high)), prefer=0.06)
    place(axes, [_name(group, colour, factor) for group, colour, _ in _looks(groups)])


def residuals(axes: Axes, groups: Sequence[Comparison], band: Band | None = None) -> None:
    """Error of each forecast in per cent of the measured step time; the band holds 80 % of runs."""
    low, high = _time_axis(axes, groups)
    misses = np.concatenate([_miss(group) for group in groups])
    reach = max(float(np.abs(misses).max()) * 1.15, 5.0)
    ends = np.array([low, high])
    if band is not None:
        limits = [100 * (np.exp(-edge) - 1) for edge in (band.high, band.low)]
        reach = max(reach, 1.15 * max(map(abs, limits)))
        _shade(axes, ends, *(np.full(2, limit) for limit in limits))
    axes.set_ylim(-reach, reach)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:+.0f} %" if value else "0")
    )
    style.name_y_axis(axes, "forecast error")
    axes.axhline(0.0, color=style.QUIET, linewidth=1.0, zorder=2)
    for group, colour, marker in _looks(groups):
        _dots(axes, group, _miss(group), _unit(groups)[0], (colour, marker))
    if band is not None:
        edge = 100 * (np.exp(-band.low) - 1)
        label_line(
            axes,
            Label("80 % band", 0, 0, style.QUIET, style.SMALL),
            ((low, edge), (high, edge)),
            0.9,
        )


def errors(groups: Sequence[Comparison]) -> str:
    """The held-out error in words: median and 90th percentile of |forecast / measured - 1|."""
    held = [group for group in groups if group.held_out]
    if not held:
        return "no held-out runs"
    ratios = np.concatenate([group.forecast_s / group.measured_s for group in held])
    misses = np.abs(ratios - 1)
    return (
        f"{len(ratios)} held-out runs: median error {units.percent(float(np.median(misses)))}, "
        f"p90 {units.percent(float(np.quantile(misses, 0.9)))}"
    )


def _looks(groups: Sequence[Comparison]) -> Iterator[tuple[Comparison, str, str]]:
    return zip(groups, cycle(style.SERIES), cycle(style.SERIES_MARKERS), strict=False)


def _miss(group: Comparison) -> Array:
    return 100 * (group.forecast_s / group.measured_s - 1)


def _frame(axes: Axes, groups: Sequence[Comparison]) -> tuple[float, float]:
    low, high = _time_axis(axes, groups)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    style.number_ticks(axes.yaxis, low, high)
    style.name_y_axis(axes, f"forecast step time ({_unit(groups)[1]})")
    return low, high


def _time_axis(axes: Axes, groups: Sequence[Comparison]) -> tuple[float, float]:
    factor, unit = _unit(groups)
    times = np.concatenate([np.append(group.measured_s, group.forecast_s) for group in groups])
    times *= factor
    low, high = float(times.min() / 1.5), float(times.max() * 1.5)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    style.number_ticks(axes.xaxis, low, high)
    axes.set_xlabel(f"measured step time ({unit})")
    return low, high


def _shade(axes: Axes, x: Array, low: Array, high: Array) -> None:
    axes.fill_between(x, low, high, color=style.FAINT, alpha=0.3, linewidth=0, zorder=1)


def _dots(axes: Axes, group: Comparison, y: Array, factor: float, look: tuple[str, str]) -> None:
    colour, marker = look
    axes.plot(
        group.measured_s * factor,
        y,
        ls="",
        marker=marker,
        ms=5,
        mew=0.9,
        markerfacecolor=colour if group.held_out else "white",
        markeredgecolor="white" if group.held_out else colour,
        zorder=4 if group.held_out else 3,
    )


def _unit(groups: Sequence[Comparison]) -> tuple[float, str]:
    return style.time_unit(max(float(group.measured_s.max()) for group in groups))


def _name(group: Comparison, colour: str, factor: float) -> Label:
    """The group's name at its point that is farthest from the diagonal, where there is room."""
    index = int(np.argmax(np.abs(_miss(group))))
    kind = "held out" if group.held_out else "in the fit"
    x, y = float(group.measured_s[index] * factor), float(group.forecast_s[index] * factor)
    return Label(f"{group.name} ({kind})", x, y, colour, weight="bold")
