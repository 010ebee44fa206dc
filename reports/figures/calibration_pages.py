"""Figures of a stored calibration: what its profile misses of its own samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from roofcast.calibrate.residuals import Residual
from roofcast.hardware.profile import Profile
from roofcast.reports.figure_data import Comparison
from roofcast.reports.figures import accuracy, style
from roofcast.reports.figures.sheet import save, sheet

_RUNS = "decode"


def groups(found: Sequence[Residual]) -> tuple[Comparison, ...]:
    """Kernels by kind, decode runs by model shape, those with most tasks first."""
    named: dict[str, list[Residual]] = {}
    for each in found:
        name = each.label.partition(" ")[0] if each.kind == _RUNS else each.kind
        named.setdefault(name, []).append(each)
    return tuple(
        Comparison(
            name,
            np.array([each.measured_s for each in members]),
            np.array([each.forecast_s for each in members]),
            held_out=False,
        )
        for name, members in sorted(named.items(), key=lambda item: -len(item[1]))
    )


def residual_figure(profile: Profile, found: Sequence[Residual], what: str) -> Figure:
    """Forecast over measured time, and the error, of one sort of samples named `what`."""
    shown = groups(found)
    with style.applied():
        figure, (left, right) = sheet(
            f"The profile beside its own {what}",
            f"{profile.name}: {len(found)} medians; hollow: all were seen by the fit",
            panels=2,
            size_in=(9.6, 4.6),
        )
        accuracy.draw(left, shown)
        accuracy.residuals(right, shown)
        return figure


def residual_pages(profile: Profile, found: Sequence[Residual], folder: Path) -> list[Path]:
    """Kernels and decode runs, a figure each, in files."""
    runs = [each for each in found if each.kind == _RUNS]
    kernels = [each for each in found if each.kind != _RUNS]
    written: list[Path] = []
    for what, chosen in (("kernels", kernels), ("decode runs", runs)):
        if chosen:
            figure = residual_figure(profile, chosen, what)
            written += save(figure, folder / f"residuals-{what.replace(' ', '-')}")
    return written
