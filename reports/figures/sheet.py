"""A page for figures: title, subtitle, panels with fixed margins; saved as PNG and SVG.

Margins are fixed in inches rather than fitted, because labels are placed for one exact size.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofcast.hardware.errors import InputError
from roofcast.reports.figures import style

COLUMN_IN, PAGE_IN, SLIDE_IN = (3.5, 3.1), (7.2, 4.6), (10.0, 5.6)
"""Width and height in inches: a column, a page's width, a slide."""

_LEFT, _RIGHT, _BOTTOM, _BETWEEN = 0.85, 0.2, 0.55, 0.85
_TOP, _FONT_PT = 0.88, 8.0


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
    style.fit_to(width / panels)
    em = style.points(1.0) / _FONT_PT  # margins hold letters, so they scale with them
    left, right, between = left_in * em, _RIGHT * em, _BETWEEN * em
    top = (_TOP if subtitle else _TOP - 0.2) * em
    panel = (width - left - right - between * (panels - 1)) / panels
    figure = Figure(figsize=size_in)
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=_BOTTOM * em / height,
        top=1 - top / height,
        wspace=between / panel,
    )
    axes = figure.subplots(1, panels, squeeze=False)[0]
    x, y = 0.12 * em / width, 1 - 0.14 * em / height
    figure.text(x, y, title, size=style.points(1.4), weight="bold", va="top")
    if subtitle:
        y = 1 - 0.40 * em / height
        figure.text(x, y, subtitle, size=style.points(1.06), color=style.QUIET, va="top")
    return figure, list(axes)


def drawn(figure: Figure, kind: str) -> bytes:
    """The figure as a PNG, SVG or PDF file."""
    file = io.BytesIO()
    with style.applied():
        # No date, so that equal figures are equal files.
        figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def save(figure: Figure, stem: str | Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figure as `stem`.png and `stem`.svg; returns the paths."""
    written = []
    for kind in formats:
        path = Path(f"{stem}.{kind}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(drawn(figure, kind))
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from None
        written.append(path)
    return written
