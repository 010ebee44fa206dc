"""What a decode step costs: architectures, operators, roofline, forecasts.

The public surface is loaded on first use, so that importing a part stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofcast.simulator.api import Setup, forecast, grid, setup
    from roofcast.simulator.models import load
    from roofcast.simulator.prediction import Forecast
    from roofcast.simulator.trajectory import Trajectory, decode
    from roofcast.simulator.workload import Parallelism

_HOMES = {
    "Forecast": "prediction",
    "Parallelism": "workload",
    "Setup": "api",
    "Trajectory": "trajectory",
    "decode": "trajectory",
    "forecast": "api",
    "grid": "api",
    "load": "models",
    "setup": "api",
}

__all__ = [
    "Forecast",
    "Parallelism",
    "Setup",
    "Trajectory",
    "decode",
    "forecast",
    "grid",
    "load",
    "setup",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
