"""The knobs of a serving fit: what they multiply, where they start, how far they may go."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.fitting import Unknown
from roofcast.calibrate.serving_points.design import Design
from roofcast.calibrate.serving_points.terms import TERMS
from roofcast.simulator.workload import Array

Stage = Literal["decode", "dispatch", "prefill", "pass", "request"]
Level = Literal["", "engine", "device"]
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Knob:
    """A positive number that multiplies terms of one stage, one value for all or one a level.

    An `optional` knob turns only in the families that ask for it.
    """

    name: str
    terms: tuple[str, ...]
    parameter: str
    unit: str
    start: float
    low: float
    high: float
    prior: float
    stage: Stage = "decode"
    by: Level = ""
    optional: bool = False

    def at(self, level: str) -> str:
        """The name of the knob's value at a level.

        >>> Knob("step", (), "host.step_s", "s", 1e-4, 1e-6, 1e-2, 1.0, by="engine").at("vllm")
        'step[vllm]'
        """
        return f"{self.name}[{level}]" if self.by else self.name

    def level_of(self, engine: str, device: str) -> str:
        """The level a point belongs to."""
        return {"engine": engine, "device": device}.get(self.by, "")

    def unknowns(self, levels: Iterable[str]) -> list[Unknown]:
        """One unknown a level."""
        names = sorted({self.at(level) for level in levels})
        return [Unknown(name, self.start, self.low, self.high, self.prior) for name in names]


@cache
def knobs() -> tuple[Knob, ...]:
    """The knobs as shipped."""
    text = resources.files("roofcast.calibrate.serving_points").joinpath("knobs.toml")
    entries: list[dict[str, Any]] = tomllib.loads(text.read_text("utf-8"))["knob"]
    return tuple(Knob(**{**entry, "terms": tuple(entry["terms"])}) for entry in entries)


def changed(given: Sequence[Knob], changes: Mapping[str, Mapping[str, Any]]) -> tuple[Knob, ...]:
    """Knobs with some fields replaced, by knob name; optional ones only where they are named."""
    kept = [knob for knob in given if not knob.optional or knob.name in changes]
    return tuple(replace(knob, **changes.get(knob.name, {})) for knob in kept)


@dataclass(frozen=True)
class Panel:
    """The knobs as they act on the points of a design."""

    knobs: tuple[Knob, ...]
    design: Design

    def levels(self, knob: Knob) -> list[str]:
        """The level of every point."""
        return [
            knob.level_of(case.setup.profile.engine, case.setup.device.id)
            for case in self.design.cases
        ]

    def unknowns(self) -> list[Unknown]:
        """What a fit of the design has to find."""
        return [unknown for knob in self.knobs for unknown in knob.unknowns(self.levels(knob))]

    def multipliers(self, stage: Stage, values: Values) -> Array:
        """(points, terms): what each term of a stage is multiplied with; 0 without a knob.

        The wire is never turned: links are as fast as they were measured.
        """
        found = np.zeros((len(self.design.cases), len(TERMS)))
        for knob, names in self._named:
            if knob.stage == stage:
                columns = [TERMS.index(term) for term in knob.terms]
                each = np.array([values[name] for name in names])[self._where[knob.name]]
                found[:, columns] = each[:, np.newaxis]
        if stage in ("decode", "prefill"):
            found[:, TERMS.index("link")] = 1.0
        return found

    @cached_property
    def _named(self) -> list[tuple[Knob, list[str]]]:
        return [(knob, sorted({knob.at(x) for x in self.levels(knob)})) for knob in self.knobs]

    @cached_property
    def _where(self) -> dict[str, NDArray[np.intp]]:
        return {
            knob.name: np.searchsorted(names, [knob.at(x) for x in self.levels(knob)])
            for knob, names in self._named
        }
