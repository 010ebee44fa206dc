"""A served trace over time, and how its latencies are spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofcast.reports.figure_data import Array
from roofcast.reports.figures import style
from roofcast.reports.figures.labels import Label, label_line, place

_QUANTILES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Series:
    """A count over time; `measured` is a second one of the same thing from a real run."""

    name: str
    time_s: Array
    values: Array
    measured_time_s: Array | None = None
    measured: Array | None = None


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds of one kind of latency, an entry a request, and the objective for it."""

    name: str
    seconds: Array
    objective_s: float | None = None
    measured_s: Array | None = None


def counts(axes: Axes, series: Sequence[Series]) -> None:
    """Requests over time: simulated solid, measured as a thin dark line."""
    highest = max(
        float(np.max(values, initial=1.0))
        for each in series
        for values in (each.values, each.measured)
        if values is not None
    )
    _time_axis(axes, series)
    axes.set_ylim(0, highest * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    style.name_y_axis(axes, "requests")
    for each, colour in zip(series, style.SERIES, strict=False):
        axes.plot(each.time_s, each.values, color=colour, zorder=2)
        if each.measured is not None and each.measured_time_s is not None:
            axes.plot(
                each.measured_time_s,
                each.measured,
                color=style.INK,
                ls=(0, (4, 2)),
                lw=0.9,
                zorder=3,
            )
    labels = [
        _at_peak(each, colour, apart)
        for each, colour, apart in zip(series, style.SERIES, _apart(series), strict=False)
    ]
    measured = next((each for each in series if each.measured is not None), None)
    if measured is not None:
        labels.append(_measured_label(measured))
    place(axes, labels)


def cache(axes: Axes, time_s: Array, use: Array) -> None:
    """Share of the KV cache in use over time."""
    _time_axis(axes, [Series("", time_s, use)])
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    style.name_y_axis(axes, "KV cache in use")
    axes.fill_between(time_s, 0, use, color=style.ORANGE, alpha=0.25, linewidth=0)
    axes.plot(time_s, use, color=style.ORANGE)


def spread(axes: Axes, data: Latencies) -> None:
    """Share of requests answered within a time, on a logarithmic axis; median and p95 are marked."""
    known = np.sort(data.seconds[~np.isnan(data.seconds)])
    known = np.maximum(known, 1e-9)
    reach = [known, *([] if data.measured_s is None else [_sorted(data.measured_s)])]
    low = min(float(values[0]) for values in reach)
    high = max(float(values[-1]) for values in reach)
    if data.objective_s is not None:
        low, high = min(low, data.objective_s), max(high, data.objective_s)
    factor, unit = style.time_unit(high)
    axes.set_xscale("log")
    axes.set_xlim(low * factor / 1.3, high * factor * 1.3)
    axes.set_ylim(0, 1.04)
    style.number_ticks(axes.xaxis, low * factor, high * factor)
    axes.set_xlabel(f"{data.name} ({unit})")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    style.name_y_axis(axes, "share of requests within")
    _step(axes, known * factor, style.BLUE, 2.0)
    if data.measured_s is not None:
        _step(axes, _sorted(data.measured_s) * factor, style.INK, 0.9, (0, (4, 2)))
    labels = []
    for quantile in _QUANTILES:
        at = float(np.quantile(known, quantile)) * factor
        axes.plot([at], [quantile], "o", color=style.BLUE, ms=4, zorder=4)
        labels.append(Label(f"p{100 * quantile:.0f} {_three(at)} {unit}", at, quantile, style.BLUE))
    if data.measured_s is not None:
        at = float(np.quantile(_sorted(data.measured_s), 0.25)) * factor
        labels.append(Label("measured", at, 0.25, style.INK, style.SMALL))
    if data.objective_s is not None:
        at = data.objective_s * factor
        axes.axvline(at, color=style.QUIET, ls=":", lw=1.1)
        name = Label("objective", at, 0.0, style.QUIET, style.SMALL)
        label_line(axes, name, ((at, 0.02), (at, 1.0)), 0.15)
    place(axes, labels)


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def _sorted(values: Array) -> Array:
    return np.maximum(np.sort(values[~np.isnan(values)]), 1e-9)


def _step(
    axes: Axes,
    values: Array,
    colour: str,
    width: float,
    dashes: tuple[float, tuple[int, ...]] | str = "-",
) -> None:
    share = np.arange(1, len(values) + 1) / len(values)
    axes.plot(values, share, color=colour, lw=width, ls=dashes, drawstyle="steps-post", zorder=3)


def _time_axis(axes: Axes, series: Sequence[Series]) -> None:
    ends = [each.time_s[-1] for each in series]
    ends += [each.measured_time_s[-1] for each in series if each.measured_time_s is not None]
    axes.set_xlim(0, max(ends))
    axes.set_xlabel("seconds since the first request")
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _apart(series: Sequence[Series]) -> list[Array]:
    """How far each curve is from the nearest other one, over its own points."""
    found = []
    for each in series:
        others = [
            np.abs(each.values - np.interp(each.time_s, other.time_s, other.values))
            for other in series
            if other is not each
        ]
        found.append(np.min(others, axis=0) if others else np.zeros_like(each.values))
    return found


def _at_peak(series: Series, colour: str, apart: Array) -> Label:
    """The curve's name where it is farthest from the others."""
    index = int(np.argmax(apart))
    return Label(
        series.name, float(series.time_s[index]), float(series.values[index]), colour, weight="bold"
    )


def _measured_label(series: Series) -> Label:
    assert series.measured is not None
    assert series.measured_time_s is not None
    index = int(0.55 * len(series.measured))
    return Label(
        "measured",
        float(series.measured_time_s[index]),
        float(series.measured[index]),
        style.INK,
        style.SMALL,
    )
