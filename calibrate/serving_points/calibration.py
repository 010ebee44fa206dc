"""From a file of serving points to profiles: fit families, judge them on unseen groups, merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.serving_points.bands import measured_band
from roofcast.calibrate.serving_points.base import TABLED, base_profile
from roofcast.calibrate.serving_points.conventions import EngineName, kernels_of
from roofcast.calibrate.serving_points.coverage import enough
from roofcast.calibrate.serving_points.design import Design, design
from roofcast.calibrate.serving_points.fit import Family, ServingFit, fit_family, metric_s, si
from roofcast.calibrate.serving_points.merge import SKEW, merge
from roofcast.calibrate.serving_points.physics import DOUBTFUL, roof_share
from roofcast.calibrate.serving_points.resolve import Case
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.profile import Band, HeldOut, Parameter, Profile
from roofcast.hardware.profile_store import shipped
from roofcast.hardware.transfer import stacked
from roofcast.simulator.workload import Array

Progress = Callable[[str], None]


@dataclass(frozen=True)
class HeldOutRows:
    """Log ratios measured / forecast of points whose group the fit did not see, by metric.

    `telling` are the points that say something of the forecast: see `telling`.
    """

    design: Design
    ratios: Mapping[str, Array]
    telling: NDArray[np.bool_]


@dataclass(frozen=True)
class Calibrated:
    """One family: what was fitted, how far held-out groups were off, and the profiles made of it."""

    fitted: ServingFit
    held_out: HeldOutRows
    profiles: tuple[Profile, ...]

    @property
    def overall(self) -> tuple[HeldOut, ...]:
        """Held-out errors of all points together, by metric."""
        scheme = "each model, device and engine left out"
        return tuple(
            _held_out(f"{metric}, {scheme}", ratios[np.isfinite(ratios)])
            for metric, ratios in self.held_out.ratios.items()
            if np.isfinite(ratios).any()
        )


def fitting_profile(device: Accelerator, named: EngineName) -> Profile:
    """The base profile under which points are designed: kernels, and routing as it is served."""
    base = base_profile(device, named.engine, named.kernels)
    skew = Parameter(SKEW, "1", "assumed")
    return replace(base, parameters={**base.parameters, "experts.skew": skew})


def calibrate_family(
    family: Family, cases: Sequence[Case], say: Progress = lambda text: None
) -> Calibrated | None:
    """Fit a family to its cases among those given; None where there are none."""
    own = [case for case in cases if family.holds(case) and case.point.use == "ok"]
    if not own:
        return None
    table = design(own)
    sound = telling(own)
    say(f"{family.name}: {len(own)} points, {int((~sound).sum())} beyond belief or with drafts")
    fitted = fit_family(family, table.take(sound))
    held = leave_out(family, table, sound, fitted, group_of)
    say(f"{family.name}: fitted")
    return Calibrated(fitted, held, tuple(_profiles(fitted, held)))


def telling(cases: Sequence[Case]) -> NDArray[np.bool_]:
    """Points that fits and intervals learn from: no faster than physics allows, and without drafts.

    How many drafts were accepted is not recorded.
    """
    plain = np.array([case.recipe.speculation is None for case in cases])
    return np.asarray((roof_share(cases) <= DOUBTFUL) & plain)


def leave_out(
    family: Family,
    table: Design,
    sound: NDArray[np.bool_],
    whole: ServingFit,
    label: Callable[[Case], str],
) -> HeldOutRows:
    """Forecast each group of points with a fit to all others; `sound` points alone are fitted."""
    labels = np.array([label(case) for case in table.cases])
    ratios = {metric: np.full(len(labels), np.nan) for metric in family.metrics}
    for group in np.unique(labels):
        rest, left = np.flatnonzero((labels != group) & sound), np.flatnonzero(labels == group)
        fitted = fit_family(family, table.take(rest), whole.values) if rest.size else whole
        part = table.take(left)
        found = fitted.predict(part)
        for metric, kept in ratios.items():
            kept[left] = np.log(si(part, metric) / metric_s(found, part, metric))
    return HeldOutRows(table, ratios, sound)


def group_of(case: Case) -> str:
    """Model, device and engine of a case."""
    setup = case.setup
    return f"{model_of(case)}|{setup.device.id}|{setup.profile.engine}"


def model_of(case: Case) -> str:
    """The model of a case, whatever its formats: its config file, else its name."""
    return case.point.config_file or case.point.model


def device_of(case: Case) -> str:
    """The device of a case."""
    return case.setup.device.id


def _profiles(fitted: ServingFit, held: HeldOutRows) -> Iterable[Profile]:
    sources = sorted({case.point.source for case in held.design.cases})
    for device, engine in sorted(_pairs(fitted.family, held.design)):
        named = EngineName(engine, kernels_of(engine))
        base = fitting_profile(find(device), named)
        kernels = [each for each in base.held_out if each.of_kernels]
        merged = merge(base, fitted, sources)
        bands = _bands(held, device)
        yield replace(
            merged,
            name=f"{device} under {engine}",
            origin=_origin(base, fitted),
            held_out=(*kernels, *_judged(held, device)),
            bands=bands,
            band=bands.get("tpot_ms") or bands.get("e2e_s"),  # a step's: of tokens, else of replies
            valid_range={"batch": (1.0, 1024.0), "context": (1.0, 131072.0)},
        )


def _pairs(family: Family, table: Design) -> set[tuple[str, str]]:
    """Devices and engines that get a profile: those with points, and those with tables and HBM.

    Leaving out all devices of an architecture in turn shows that datacentre GPUs may lend each other
    their steps. Cards with other memory hang on other hosts, and the runs of vLLM measured on two of
    them contradict such a loan, so their profiles keep to kernels and assumed host times.
    """
    pairs = {(case.setup.device.id, case.setup.profile.engine) for case in table.cases}
    for path in shipped():
        device, _, engine = path.name.removesuffix(".json").partition(".")
        if engine in TABLED and engine in family.engines and stacked(find(device)):
            pairs.add((device, engine))
    return pairs


def _origin(base: Profile, fitted: ServingFit) -> str:
    engines = ", ".join(fitted.family.engines)
    steps = f"steps fitted to {fitted.rows:,} public serving points ({engines}"
    return f"{base.origin.partition('; steps')[0]}; {steps}{_years(fitted.family)})"


def _years(family: Family) -> str:
    return f", {family.years}" if family.years else ""


def _own(
    held: HeldOutRows, device: str, metric: str, counted: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.str_], str]:
    """Held-out log ratios of the points that count on a device and their groups.

    Those of all devices where it has too few.
    """
    ratios = held.ratios[metric]
    here = np.array([device_of(case) == device for case in held.design.cases])
    groups = np.array([group_of(case) for case in held.design.cases])
    known, scope = np.isfinite(ratios) & counted, device
    seen = here & known
    if not enough(seen, groups):
        seen, scope = known, "all devices"
    return ratios[seen], groups[seen], scope


def _bands(held: HeldOutRows, device: str) -> dict[str, Band]:
    found = {}
    for metric in held.ratios:
        ratios, groups, scope = _own(held, device, metric, held.telling)
        if ratios.size:
            origin = (
                f"{ratios.size} held-out points, {scope}, each model, device and engine left out"
            )
            found[metric] = measured_band(ratios, list(groups), origin)
    return found


def _judged(held: HeldOutRows, device: str) -> Iterable[HeldOut]:
    every = np.ones(len(held.design.cases), dtype=bool)
    for metric in held.ratios:
        ratios, _, scope = _own(held, device, metric, every)
        if ratios.size:
            yield _held_out(f"{metric} of {scope}, each model, device and engine left out", ratios)


def _held_out(scheme: str, ratios: Array) -> HeldOut:
    errors = np.expm1(-ratios)
    return HeldOut(
        scheme=scheme,
        runs=int(ratios.size),
        median_ape=round(float(np.median(np.abs(errors))), 4),
        p90_ape=round(float(np.quantile(np.abs(errors), 0.9)), 4),
        signed_median=round(float(np.median(errors)), 4),
    )
