"""The visual language: colours, markers, line styles, number formats on axes.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), told apart by people with any
common colour vision; every meaning also has a marker, a hatch or a line style, so that a figure
reads in grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import matplotlib.style as mpl_style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from roofcast.reports import units

INK = "#222222"
QUIET = "#6b6b6b"
FAINT = "#b5b5b5"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
SKY, AMBER, PURPLE = "#56b4e9", "#e69f00", "#cc79a7"

SERIES = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, INK)
"""Colours of curves that mean nothing in themselves, in order."""

_TICK_GAP_PT = 24.0
_SCALES = ((4.2, 6.5, 1.3, 4.0), (9.0, 8.0, 1.8, 5.5), (float("inf"), 11.0, 2.2, 7.0))
SMALL = 0.93
"""Size of what is secondary, as a fraction of the figure's font size."""

SERIES_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True, slots=True)
class Mark:
    """How a meaning is drawn: its word, a colour, and what tells it apart in grey."""

    word: str
    colour: str
    marker: str = "o"
    hatch: str = ""


KINDS = {
    "gemm": Mark("matrix products", BLUE, "o"),
    "experts": Mark("experts", GREEN, "s"),
    "attention": Mark("attention", ORANGE, "^"),
    "state": Mark("recurrent state", PURPLE, "D"),
    "elementwise": Mark("element-wise", AMBER, "v"),
    "collective": Mark("collectives", SKY, "P"),
}
"""Operator kinds, as in `simulator.operators`."""

CAUSES = {
    "weights": Mark("weights", BLUE),
    "kv_cache": Mark("KV cache", ORANGE, hatch="////"),
    "activations": Mark("activations", AMBER, hatch=".."),
    "compute": Mark("compute", GREEN, hatch="xx"),
    "interconnect": Mark("interconnect", SKY, hatch="\\\\\\\\"),
    "overhead": Mark("launch and host", FAINT, hatch=""),
}
"""Causes of a step's time, as in `Forecast.causes`."""


@contextmanager
def applied() -> Iterator[None]:
    """Figures made and saved inside look like the project's, whatever the user's settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl_style.use(Path(__file__).with_name("roofcast.mplstyle"))
        yield


def fit_to(width_in: float) -> None:
    """Letters and lines for panels of that width: a column, a page, a slide. Inside `applied()`."""
    for widest, font, line, marker in _SCALES:
        if width_in <= widest:
            mpl.rcParams.update(
                {"font.size": font, "lines.linewidth": line, "lines.markersize": marker}
            )
            return


def points(scale: float) -> float:
    """A font size in points from a fraction of the figure's."""
    return scale * float(mpl.rcParams["font.size"])


def time_unit(longest_s: float) -> tuple[float, str]:
    """The factor and the name of the unit that suits times up to `longest_s`.

    >>> time_unit(0.0125), time_unit(4.0)
    ((1000.0, 'ms'), (1.0, 's'))
    """
    for least, factor, unit in ((2.0, 1.0, "s"), (2e-3, 1e3, "ms")):
        if longest_s >= least:
            return factor, unit
    return 1e6, "µs"


def unit_ticks(axis: Axis, unit: str) -> None:
    """Decade ticks of a logarithmic axis, written with prefixes: 10 GFLOP/s, 1 TFLOP/s."""
    axis.set_major_locator(LogLocator(10.0))
    axis.set_major_formatter(FuncFormatter(lambda value, _: units.tidy(value, unit).strip()))
    axis.set_minor_locator(NullLocator())


def number_ticks(axis: Axis, low: float, high: float) -> None:
    """Ticks of a logarithmic axis at 1, 10, 100 or, over few decades, at 1, 2, 5 as well."""
    few = high / low < 1500
    axis.set_major_locator(LogLocator(10.0, subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_locator(NullLocator())


def short(value: float) -> str:
    """A number in few letters.

    >>> short(2000.0), short(50.0)
    ('2k', '50')
    """
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def power_ticks(axes: Axes, values: Sequence[float], spelled: bool = False) -> None:
    """Ticks of the x axis at given values, as many as fit side by side; `spelled` writes 8k.

    Call it when the limits are final.
    """
    thinned = list(values)
    while len(thinned) > 2 and _tightest_gap_pt(axes, thinned) < _TICK_GAP_PT:
        thinned = thinned[::2]
    write = units.tokens if spelled else (lambda value: f"{value:,.0f}")
    axes.xaxis.set_major_locator(FixedLocator(thinned))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def _tightest_gap_pt(axes: Axes, values: Sequence[float]) -> float:
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes without a figure"
    places = axes.transData.transform([(value, 1.0) for value in values])[:, 0]
    return float(min(b - a for a, b in pairwise(places))) * 72 / figure.dpi


def name_y_axis(axes: Axes, text: str) -> None:
    """The name of the y axis, upright above it, where it reads without turning the head."""
    axes.set_ylabel(text, rotation=0, ha="left", va="bottom")
    axes.yaxis.set_label_coords(0.0, 1.01)
