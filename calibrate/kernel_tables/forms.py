"""Which terms a kind of kernel is fitted with: forms.toml as values."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from roofcast.calibrate.fitting import Unknown


@dataclass(frozen=True, slots=True)
class Term:
    """A parameter of the model: its bounds, the term without which it means nothing, its unit."""

    name: str
    unit: str
    start: float
    low: float
    high: float
    optional: bool = False
    needs: str | None = None

    def unknown(self, full_name: str) -> Unknown:
        """What the fit searches."""
        return Unknown(full_name, self.start, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Form:
    """The terms of one kind of table, joined with an exponent (0: the largest counts).

    `lent` names terms that its rows can't tell, whatever the fit says.
    """

    kind: str
    terms: tuple[Term, ...]
    exponent: float = 0.0
    lent: tuple[str, ...] = ()

    def without(self, names: set[str]) -> Form:
        """The form without some terms, and without those that need them."""
        gone = names | {term.name for term in self.terms if term.needs in names}
        return replace(self, terms=tuple(term for term in self.terms if term.name not in gone))

    def with_cache(self) -> Form:
        """With the nuisances of data that an L2 cache may hold."""
        return replace(self, terms=(*self.terms, *map(term, CACHE_TERMS)))


CACHE_TERMS = ("cache_share", "cache_cost")
_PLAIN = ("fixed_s", "bandwidth_efficiency", "compute_efficiency")


@cache
def _described() -> Mapping[str, Any]:
    text = resources.files("roofcast.calibrate.kernel_tables").joinpath("forms.toml")
    return tomllib.loads(text.read_text("utf-8"))


@cache
def term(name: str) -> Term:
    """A term by name."""
    return Term(name, **_described()["terms"][name])


def form(table: str) -> Form:
    """The form that the kernels of one kind of table are fitted with."""
    entry = _described()["forms"][table]
    terms = tuple(term(name) for name in entry["terms"])
    lent = tuple(entry.get("lent", ()))
    return Form(entry["kind"], terms, entry.get("exponent", 0.0), lent)


def plain(table: str) -> Form:
    """The roofline alone: a fixed time and the larger of two roofs."""
    full = form(table)
    terms = tuple(t for t in full.terms if t.name in _PLAIN or full.kind == "collective")
    return Form(full.kind, terms)
