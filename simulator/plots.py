"""Where `Forecast.plot` comes from: a package that offers figures, found by its entry point.

The simulator knows no plotting and imports none. A package registers a class that takes a forecast:

    [project.entry-points."roofcast.plots"]
    default = "roofcast.reports.plotting:Plots"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from roofcast.hardware.errors import InputError

GROUP = "roofcast.plots"


@cache
def plots() -> Callable[[Any], Any]:
    """What makes the figures of a forecast; InputError where no installed package offers any."""
    for entry in entry_points(group=GROUP):
        found: Callable[[Any], Any] = entry.load()
        return found
    raise InputError(
        f"no installed package offers figures (entry points {GROUP}); install roofcast itself, "
        "with `pip install -e .` from a checkout"
    )
