"""What a person sees: text, tables, figures, reports and the command line.

`plot` is loaded on first use, so that importing a part stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofcast.reports.plotting import plot

__all__ = ["plot"]


def __getattr__(name: str) -> object:
    if name != "plot":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from roofcast.reports import plotting

    return plotting.plot
