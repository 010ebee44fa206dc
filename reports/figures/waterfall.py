"""Where a measured step's time went, from the weights to what nobody can explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofcast.reports import units
from roofcast.reports.audit_rows import AuditBar
from roofcast.reports.figures import key, style
from roofcast.reports.figures.geometry import pixels_per_point
from roofcast.reports.figures.labels import text_size
from roofcast.reports.figures.style import Mark

PARTS = {
    "weights": style.CAUSES["weights"],
    "kv_cache": style.CAUSES["kv_cache"],
    "activations": style.CAUSES["activations"],
    "compute": style.CAUSES["compute"],
    "launch_and_host": style.CAUSES["overhead"],
    "collectives": Mark("collectives", style.SKY, hatch="\\\\\\\\"),
    "prefill_interference": Mark("prefill of others", style.PURPLE, hatch="oo"),
    "unexplained": Mark("unexplained", "#ffffff", hatch="////"),
}
"""Parts of a measured step, as in `calibrate.audit.measured`, in the order they are drawn."""

_HEIGHT = 0.64
_SLIVER = 0.004
_MEASURED = "measured"


def draw(axes: Axes, bar: AuditBar) -> None:
    """One point: a row a part, each starting where the one above it ended, down to the measured step.

    What made the step faster than forecast runs backwards. The floor and the forecast step are lines.
    """
    shown = {name: value for name, value in bar.seconds.items() if _counts(value, bar)}
    factor, unit = style.time_unit(bar.measured_s)
    reach = max(bar.measured_s, bar.forecast_s, _peak(shown)) * factor
    _frame(axes, [PARTS[name].word for name in shown] + [_MEASURED], reach * 1.2, unit)
    start = 0.0
    for row, (name, seconds) in enumerate(shown.items()):
        _segment(axes, row, start * factor, seconds * factor, PARTS[name])
        end = start + seconds
        axes.plot([end * factor] * 2, [row - 0.32, row + 1.32], color=style.FAINT, lw=0.6, zorder=1)
        _write(axes, row, max(start, end) * factor, _signed(seconds))
        start = end
    _segment(axes, len(shown), 0.0, bar.measured_s * factor, Mark(_MEASURED, style.QUIET))
    _write(axes, len(shown), bar.measured_s * factor, units.seconds(bar.measured_s))
    _marks(axes, bar, factor)


def stack(axes: Axes, bars: Sequence[AuditBar]) -> None:
    """Several points: a bar each, split by part, with its floor and the total; parts are named above.

    A bar shorter than its parts (faster than forecast) ends at the measured step, a line marks it.
    """
    longest_s = max(max(bar.measured_s, _peak(bar.seconds)) for bar in bars)
    factor, unit = style.time_unit(longest_s)
    _frame(axes, [bar.name for bar in bars], longest_s * factor * 1.16, unit)
    axes.set_ylim(len(bars) - 0.45, -1.15)
    for row, bar in enumerate(bars):
        start = 0.0
        for name, mark in PARTS.items():
            seconds = max(bar.seconds.get(name, 0.0), 0.0)
            if seconds > 0:
                _segment(axes, row, start * factor, seconds * factor, mark)
            start += seconds
        _write(axes, row, max(start, bar.measured_s) * factor, units.seconds(bar.measured_s))
        _tick(axes, row, bar.floor_s * factor, style.INK, "-")
        if bar.seconds["unexplained"] < 0:
            _tick(axes, row, bar.measured_s * factor, style.ORANGE, "-")
    _key(axes, bars)


def _counts(seconds: float, bar: AuditBar) -> bool:
    return abs(seconds) > _SLIVER * bar.measured_s


def _peak(seconds: Mapping[str, float]) -> float:
    """The farthest that parts reach one after the other."""
    return float(sum(max(value, 0.0) for value in seconds.values()))


def _signed(seconds: float) -> str:
    return units.seconds(seconds) if seconds >= 0 else f"−{units.seconds(-seconds)}"


def _frame(axes: Axes, names: Sequence[str], right: float, unit: str) -> None:
    axes.set_xlim(0, right)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_yticks(range(len(names)), list(names))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(f"time per step ({unit})")


def _segment(axes: Axes, row: int, start: float, width: float, mark: Mark) -> None:
    blank = mark.colour == "#ffffff"
    axes.barh(
        row,
        width,
        _HEIGHT,
        start,
        color=mark.colour,
        edgecolor=style.QUIET if blank else "white",
        linewidth=0.6,
        hatch=mark.hatch,
        zorder=2,
    )


def _write(axes: Axes, row: int, x: float, text: str) -> None:
    """A number right of its bar, on a plate that keeps the lines behind it away."""
    plate = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    axes.annotate(
        text,
        (x, row),
        (6, 0),
        textcoords="offset points",
        va="center",
        ha="left",
        fontsize=style.points(1.0),
        bbox=plate,
        zorder=5,
    )


def _marks(axes: Axes, bar: AuditBar, factor: float) -> None:
    """Floor and forecast as lines through all rows, named at the bottom on either side."""
    floor, forecast = bar.floor_s * factor, bar.forecast_s * factor
    near = abs(forecast - floor) < 0.02 * axes.get_xlim()[1]
    for x, text, align, line in (
        (floor, "floor ", "right", "-"),
        (forecast, " floor and forecast" if near else " forecast", "left", "--"),
    ):
        if near and align == "right":
            continue
        axes.axvline(x, color=style.INK, lw=0.9, ls=line, zorder=3)
        axes.text(
            x,
            -0.5,
            text,
            ha=align,
            va="bottom",
            fontsize=style.points(style.SMALL),
            color=style.INK,
        )


def _tick(axes: Axes, row: int, x: float, colour: str, line: str) -> None:
    axes.plot([x, x], [row - 0.42, row + 0.42], color=colour, lw=1.4, ls=line, zorder=4)


def _key(axes: Axes, bars: Sequence[AuditBar]) -> None:
    """Swatches with their words in rows above the first bar; the floor's tick as well."""
    used = [
        mark
        for name, mark in PARTS.items()
        if any(bar.seconds.get(name, 0.0) > _SLIVER * bar.measured_s for bar in bars)
    ]
    rows = [(-0.98, used[:4]), (-0.66, used[4:])] if len(used) > 4 else [(-0.75, used)]
    for y, marks in rows:
        x = 0.0
        for mark in marks:
            x = key.swatch(axes, mark, x, y)
    x = _stroke(axes, "floor", style.INK, x, rows[-1][0])
    if any(bar.seconds["unexplained"] < 0 for bar in bars):
        _stroke(axes, _MEASURED, style.ORANGE, x, rows[-1][0])


def _stroke(axes: Axes, word: str, colour: str, x: float, y: float) -> float:
    """A tick of the key at x pixels, with its word; where the next one goes."""
    point = pixels_per_point(axes)
    width = axes.get_window_extent().width
    where = axes.get_yaxis_transform()
    at = (x + 3 * point) / width
    axes.plot([at, at], [y - 0.12, y + 0.12], color=colour, lw=1.4, transform=where, clip_on=False)
    axes.text(at + 5 * point / width, y, word, transform=where, va="center")
    return x + 8 * point + float(text_size(axes, word)[0]) + 12 * point
