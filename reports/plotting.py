"""Figures of a forecast from Python and in notebooks: `plot(forecast).roofline()`.

    from roofcast.reports import plot
    drawing = plot(forecast).roofline()   # shows itself in a notebook
    drawing.save("roofline")              # roofline.png and roofline.svg

`forecast.plot.roofline()` is the same, by the entry point that this package registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roofcast.hardware.errors import InputError
from roofcast.reports import figure_data
from roofcast.simulator.api import Setup
from roofcast.simulator.prediction import Forecast, forecast_pass
from roofcast.simulator.trajectory import Trajectory
from roofcast.simulator.workload import Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_CURVES = 7
_MOST_BARS = 24


@dataclass(frozen=True)
class Drawing:
    """A figure that shows itself in a notebook; `figure` is matplotlib's own."""

    figure: Figure

    def _repr_svg_(self) -> str:
        from roofcast.reports.figures.sheet import drawn

        return drawn(self.figure, "svg").decode()

    def save(self, stem: str | Path) -> list[Path]:
        """Write `stem`.png and `stem`.svg; returns their paths."""
        from roofcast.reports.figures.sheet import save

        return save(self.figure, stem)


@dataclass(frozen=True)
class Plots:
    """The figures of one forecast, over the batches and contexts it has."""

    forecast: Forecast

    def roofline(self) -> Drawing:
        """Operators on the roofline at every batch, at the first context."""
        from roofcast.reports.figures.pages import roofline_figure

        return Drawing(roofline_figure(self._at(self._batches, self._contexts[0])))

    def throughput(self) -> Drawing:
        """Tokens/s over batch, a curve for each context."""
        from roofcast.reports.figures.pages import throughput_figure

        _need(self._batches.size > 1, "throughput needs two batches or more")
        few = _few(self._contexts, "contexts")
        return Drawing(throughput_figure([self._at(self._batches, each) for each in few]))

    def latency(self) -> Drawing:
        """Step time over context, a curve for each batch."""
        from roofcast.reports.figures.pages import latency_figure

        _need(self._contexts.size > 1, "latency needs two contexts or more")
        few = _few(self._batches, "batches")
        return Drawing(latency_figure([self._at(each, self._contexts) for each in few]))

    def bounds(self) -> Drawing:
        """What bounds a step at every batch and context, and what fits; not only at these points."""
        from roofcast.reports.figures.pages import heatmap_figure

        return Drawing(heatmap_figure(self._where()))

    def breakdown(self) -> Drawing:
        """Where the time of each point goes."""
        from roofcast.reports.figures.pages import breakdown_figure

        size = self.forecast.step_time_s.size
        _need(size <= _MOST_BARS, f"breakdown draws up to {_MOST_BARS} points, not {size}")
        bars = figure_data.breakdown(self.forecast, list(self._names()))
        title = "Where a decode step's time goes"
        about = f"{self.forecast.work.architecture.name} on {self.forecast.device.name}"
        return Drawing(breakdown_figure(title, about, bars))

    @property
    def _batches(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.unique(self.forecast.batch)

    @property
    def _contexts(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.unique(self.forecast.context)

    def _at(self, batch: object, context: object) -> Forecast:
        """The same pass at other points."""
        work = replace(self.forecast.work, workload=Workload.decode(batch, context))  # type: ignore[arg-type]
        return forecast_pass(work, self.forecast.device, self.forecast.profile)

    def _where(self) -> Setup:
        """What the forecast was made under."""
        work = self.forecast.work
        return Setup(
            architecture=work.architecture,
            device=self.forecast.device,
            profile=self.forecast.profile,
            parallelism=work.parallelism,
            kv_dtype=work.kv_dtype,
            activation_dtype=work.activation_dtype,
            skew=work.skew,
            kernels=work.engine,
            launch=work.launch,
        )

    def _names(self) -> Iterator[str]:
        shape = self.forecast.step_time_s.shape
        batches = np.ravel(np.broadcast_to(self.forecast.batch, shape))
        contexts = np.ravel(np.broadcast_to(self.forecast.context, shape))
        for batch, context in zip(batches, contexts, strict=True):
            yield f"batch {batch:,.0f}, context {context:,.0f}"


def plot_reply(reply: Trajectory) -> Drawing:
    """One reply as its cache grows, each step split by cause."""
    from roofcast.reports.figures.pages import reply_figure

    return Drawing(reply_figure(reply))


def plot(forecast: Forecast) -> Plots:
    """The figures of a forecast."""
    return Plots(forecast)


def _need(given: bool, what: str) -> None:
    if not given:
        raise InputError(what)


def _few(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], name: str) -> list[float]:
    """All values, or as many as there are colours, evenly picked."""
    _need(values.size > 0, f"no {name} to draw")
    picked = np.linspace(0, values.size - 1, min(values.size, _MOST_CURVES)).round().astype(int)
    return [float(values[index]) for index in np.unique(picked)]
