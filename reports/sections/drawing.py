"""Figures of the visual language as blocks of a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from roofcast.reports.document.blocks import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


def block(draw: Callable[[], Drawn], key: str, caption: str, description: str) -> Figure:
    """A figure inside a page; `key` is unique within it."""

    def svg() -> str:
        from roofcast.reports.document.svg import inline
        from roofcast.reports.figures.sheet import drawn

        return inline(drawn(draw(), "svg").decode(), key)

    return Figure(caption, description, svg)
