"""Put what a serving fit found into a profile, leaving its kernel parameters as they were measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from roofcast.calibrate.fitting import Estimate
from roofcast.calibrate.serving_points.fit import ServingFit
from roofcast.calibrate.serving_points.knobs import Knob
from roofcast.hardware.profile import Parameter, Profile

SKEW = 0.9
"""Zipf exponent of expert use under which measured expert kernels explain served steps unscaled."""


def merge(base: Profile, fitted: ServingFit, sources: Iterable[str] = ()) -> Profile:
    """The base profile with the knobs of a fit as parameters of its engine and device."""
    added = dict(base.parameters)
    origin = tuple(sources)
    for knob in fitted.family.knobs:
        name = knob.at(knob.level_of(base.engine, base.device))
        parameter = _parameter(knob, name, fitted, origin)
        added.update(dict.fromkeys(targets(knob), parameter))
    added["experts.skew"] = Parameter(SKEW, "1", "assumed", sources=origin, note=SKEW_NOTE)
    return replace(base, parameters=added)


SKEW_NOTE = (
    "with uniform routing served steps are faster than their experts' bytes at peak bandwidth"
)


def targets(knob: Knob) -> tuple[str, ...]:
    """Names of the profile parameters a knob sets.

    >>> targets(Knob("kernel", ("state.kernels",), "*.launch_s", "s", 1e-6, 1e-7, 1e-4, 0.1))
    ('state.launch_s',)
    """
    if not knob.parameter.startswith("*."):
        return (knob.parameter,)
    kinds = (term.partition(".")[0] for term in knob.terms)
    return tuple(f"{kind}{knob.parameter[1:]}" for kind in kinds)


def _parameter(knob: Knob, name: str, fitted: ServingFit, sources: tuple[str, ...]) -> Parameter:
    found = next((e for e in fitted.estimates if e.name == name), None)
    shared = f"one value for {', '.join(fitted.family.engines)}" if not knob.by else ""
    if found is None:
        note = f"mean of the {knob.by}s with points"
        return Parameter(fitted.usual(name), knob.unit, "transferred", None, sources, note)
    note = "; ".join(filter(None, (shared, _doubt(found))))
    return Parameter(found.value, knob.unit, "fitted", found.standard_error, sources, note)


def _doubt(found: Estimate) -> str:
    return "" if found.status == "ok" else f"{found.status}: held by its prior"
