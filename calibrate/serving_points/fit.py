"""Fit the knobs of a family of engines to measured serving points, robustly and with errors."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.fitting import Estimate, Fit, Sample, Unknown, fit
from roofcast.calibrate.serving_points.design import Design
from roofcast.calibrate.serving_points.knobs import Knob, Panel, changed, knobs
from roofcast.calibrate.serving_points.model import Predicted, predict
from roofcast.calibrate.serving_points.points import METRICS
from roofcast.calibrate.serving_points.resolve import Case
from roofcast.hardware.catalog import find
from roofcast.hardware.transfer import SPREAD, distance
from roofcast.simulator.workload import Array

NOISE: Final = 0.08
"""Log ratio beyond which a point pulls linearly."""


TOLERANCE: Final = 1e-4
"""Where a search ends: forecasts no longer change by a thousandth."""


@dataclass(frozen=True, slots=True)
class Family:
    """Engines fitted together: whose points count, how much each metric weighs, which knobs turn.

    `years` and `news` are explained in families.toml.
    """

    name: str
    sources: str
    engines: tuple[str, ...]
    metrics: Mapping[str, float]
    knobs: tuple[Knob, ...]
    vendors: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    years: str = ""
    news: float = 1.0

    def unknowns(self, panel: Panel) -> list[Unknown]:
        """What a fit has to find, priors drawn in so that they weigh as if only the news spoke."""
        drawn = math.sqrt(self.news)
        return [
            each if each.prior_sd is None else replace(each, prior_sd=each.prior_sd * drawn)
            for each in panel.unknowns()
        ]

    def holds(self, case: Case) -> bool:
        """Whether a case belongs to the family."""
        setup = case.setup
        return (
            setup.profile.engine in self.engines
            and bool(re.search(self.sources, case.point.source))
            and (not self.vendors or setup.device.vendor in self.vendors)
            and (not self.devices or setup.device.id in self.devices)
        )


@dataclass(frozen=True)
class ServingFit:
    """What a family's points say; `rows` of them counted."""

    family: Family
    values: Mapping[str, float]
    estimates: tuple[Estimate, ...] = field(default=())
    rows: int = 0

    def predict(self, design: Design) -> Predicted:
        """Forecast the points of a design; knobs at levels the fit never saw take their mean."""
        panel = Panel(self.family.knobs, design)
        known = dict(self.values)
        for unknown in panel.unknowns():
            known.setdefault(unknown.name, self.usual(unknown.name))
        return predict(panel, known)

    def usual(self, name: str) -> float:
        """What an unseen level of a knob gets: the geometric mean of the levels nearest to it.

        Devices are as near as `hardware.transfer` says, engines all alike.
        """
        stem, _, level = name.rstrip("]").partition("[")
        found = {
            known.rstrip("]").partition("[")[2]: value
            for known, value in self.values.items()
            if known.partition("[")[0] == stem
        }
        if not found:
            return next(knob.start for knob in self.family.knobs if knob.name == stem)
        by_device = any(knob.name == stem and knob.by == "device" for knob in self.family.knobs)
        kept = nearest(level, found) if by_device else list(found)
        return float(np.exp(np.mean([np.log(found[each]) for each in kept])))


def nearest(device: str, among: Iterable[str]) -> list[str]:
    """The devices nearest to one, as far as transfers reach."""
    apart = {other: distance(find(device), find(other)) for other in among}
    reach = min(apart.values()) + SPREAD
    return [other for other, far in apart.items() if far <= reach]


def fit_family(
    family: Family, design: Design, begin: Mapping[str, float] | None = None
) -> ServingFit:
    """Fit a family's knobs to the points of a design; every group of points weighs sub-linearly.

    `begin` is where the search sets out, e.g. the result with all points.
    """
    panel = Panel(family.knobs, design)
    blocks = [(m, np.flatnonzero(np.isfinite(design.measured(m)))) for m in family.metrics]
    measured = np.concatenate([si(design, m)[rows] for m, rows in blocks])
    groups = group_labels(design)
    share = _shares(groups)
    weights = np.concatenate([family.metrics[m] * share[rows] for m, rows in blocks])
    clusters = np.concatenate([groups[rows] for _, rows in blocks])

    def model(values: Mapping[str, float]) -> Array:
        found = predict(panel, values)
        return np.concatenate([metric_s(found, design, m)[rows] for m, rows in blocks])

    sample = Sample(measured, weights, clusters)
    unknowns = family.unknowns(panel)
    result: Fit = fit(model, unknowns, sample, NOISE, begin, tolerance=TOLERANCE)
    return ServingFit(family, result.values, result.estimates, len(design.cases))


def metric_s(found: Predicted, design: Design, metric: str) -> Array:
    """A forecast metric in seconds (tokens per second for output_tok_s)."""
    if metric == "output_tok_s":
        load = design.load
        return np.asarray(load.concurrency * load.output / found.e2e_s)
    return np.asarray(
        {"tpot_ms": found.tpot_s, "ttft_ms": found.ttft_s, "e2e_s": found.e2e_s}[metric]
    )


def si(design: Design, metric: str) -> Array:
    """A metric as measured, in seconds; NaN where it is not reported."""
    return design.measured(metric) * (1e-3 if metric.endswith("_ms") else 1.0)


def group_labels(design: Design) -> NDArray[np.str_]:
    """Model, device and engine of every point: whose errors belong together."""
    return np.array(
        [
            f"{case.setup.architecture.name}|{case.setup.device.id}|{case.setup.profile.engine}"
            for case in design.cases
        ]
    )


def _shares(groups: NDArray[np.str_]) -> Array:
    """Weights n^-1/2 by group size n, of mean 1: large sweeps count more, not in proportion."""
    _, back, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    share = 1.0 / np.sqrt(sizes[back])
    return np.asarray(share / share.mean())


@cache
def families() -> tuple[Family, ...]:
    """The families as shipped."""
    text = resources.files("roofcast.calibrate.serving_points").joinpath("families.toml")
    return tuple(_family(entry) for entry in tomllib.loads(text.read_text("utf-8"))["family"])


def _family(entry: Mapping[str, Any]) -> Family:
    unread = set(entry["metrics"]) - set(METRICS)
    if unread:
        raise ValueError(f"family {entry['name']}: no metric {sorted(unread)}")
    return Family(
        name=entry["name"],
        sources=entry["sources"],
        engines=tuple(entry["engines"]),
        metrics=entry["metrics"],
        knobs=changed(knobs(), entry.get("knobs", {})),
        vendors=tuple(entry.get("vendors", ())),
        devices=tuple(entry.get("devices", ())),
        years=entry.get("years", ""),
        news=entry.get("news", 1.0),
    )


def family_of(case: Case, among: Sequence[Family]) -> Family | None:
    """The family a case belongs to, None where no family fits it."""
    return next((family for family in among if family.holds(case)), None)
