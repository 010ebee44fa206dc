"""A page for figures: title, subtitle, panels with fixed margins; saved as PNG and SVG.

Margins are fixed in inches rather than fitted, because labels are placed for one exact size.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofcast.hardware.errors import InputError
from roofcast.reports.figures import style

COLUMN_IN, PAGE_IN, SLIDE_IN = (3.5, 2.9), (7.2, 4.6), (10.0, 5.6)
"""Width and height in inches: a column, a page's width, a slide."""

_LEFT, _RIGHT, _BOTTOM, _BETWEEN = 0.85, 0.2, 0.55, 0.85
_TOP = 0.88


def sheet(
    title: str,
    subtitle: str = "",
    *,
    panels: int = 1,
    size_in: tuple[float, float] = PAGE_IN,
    left_in: float = _LEFT,
) -> tuple[Figure, list[Axes]]:
    """A figure with `panels` axes in a row under a title. Use it inside `style.applied()`."""
    width, height = size_in
    figure = Figure(figsize=size_in)
    top = _TOP if subtitle else _TOP - 0.2
    figure.subplots_adjust(
        left=left_in / width,
        right=1 - _RIGHT / width,
        bottom=_BOTTOM / height,
        top=1 - top / height,
        wspace=_BETWEEN * panels / max(width - left_in - _RIGHT - _BETWEEN * (panels - 1), 1.0),
    )
    axes = figure.subplots(1, panels, squeeze=False)[0]
    figure.text(0.12 / width, 1 - 0.14 / height, title, size=11, weight="bold", va="top")
    if subtitle:
        place = (0.12 / width, 1 - 0.40 / height)
        figure.text(*place, subtitle, size=8.5, color=style.QUIET, va="top")
    return figure, list(axes)


def save(figure: Figure, stem: str | Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figure as `stem`.png and `stem`.svg; returns the paths."""
    written = []
    for kind in formats:
        path = Path(f"{stem}.{kind}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # No date, so that equal figures are equal files.
            figure.savefig(path, metadata={"Date": None} if kind == "svg" else None)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None
        written.append(path)
    return written
