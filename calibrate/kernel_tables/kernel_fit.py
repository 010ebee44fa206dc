"""Fit one group of kernels with the functions that a forecast uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.fitting import Errors, Fit, Sample, fit
from roofcast.calibrate.kernel_tables.forms import CACHE_TERMS, Form, Term
from roofcast.calibrate.kernel_tables.groups import Group
from roofcast.calibrate.kernel_tables.sources import l2_bytes
from roofcast.calibrate.kernel_tables.workloads import Rows
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Parameter, Profile
from roofcast.simulator.passes import Operator
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.workload import Array

Mask = NDArray[np.bool_]

MOST_ROWS: Final = 4000
_DECODE_ROWS: Final = 256  # products taller than this belong to prefill
_PREFILL_WEIGHT: Final = 0.5
_COLD_WEIGHT: Final = 3.0  # decode reads every layer's cache cold, so cold rows say more
_STEEPNESS: Final = 4.0
_IMPOSSIBLE: Final = 1.05
_RETRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Lent:
    """A value that the rows can't tell, and whose it is."""

    value: float
    why: str


@dataclass(frozen=True)
class KernelFit:
    """What a group of kernels achieves under a form, and the fit behind it.

    `lent` holds the terms that were not fitted but taken from relatives.
    """

    group: Group
    form: Form
    found: Fit
    impossible: int
    lent: Mapping[str, Lent] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, float]:
        """Term values by name, the nuisances among them."""
        return {**self.found.values, **{name: each.value for name, each in self.lent.items()}}

    def status(self, name: str) -> str:
        """How well a term is known: as the fit says, or "lent"; "absent" where the form has none."""
        if name in self.lent:
            return "lent"
        return self.found[name].status if name in self.found.values else "absent"

    def predicted(self, rows: Rows, device: Accelerator) -> Array:
        """Seconds of rows, on the caches they were measured on."""
        return _model(rows, device, self.group, self.form, self.values)

    def from_memory(self, rows: Rows, device: Accelerator) -> Array:
        """Seconds of rows if nothing of theirs were in a cache, as in a step."""
        cold = {name: value for name, value in self.values.items() if name not in CACHE_TERMS}
        return _model(rows, device, self.group, self.form, cold)

    def errors(self, rows: Rows, device: Accelerator, chosen: Mask | None = None) -> Errors:
        """How far rows are from the model."""
        ratios = np.log(rows.measured_s / self.predicted(rows, device))
        return Errors.of(ratios if chosen is None else ratios[chosen])

    def parameters(self) -> dict[str, Parameter]:
        """The profile's parameters, with their errors and what limits them."""
        named = {term.name: term for term in self.form.terms if term.name not in CACHE_TERMS}
        return {
            f"{self.form.kind}.{name}{self.group.suffix}": self._parameter(term)
            for name, term in named.items()
        } | self._joined()

    def _joined(self) -> dict[str, Parameter]:
        if not self.form.exponent:
            return {}
        name = f"{self.form.kind}.exponent{self.group.suffix}"
        note = "held: see calibrate/kernel_tables/forms.toml"
        return {
            name: Parameter(self.form.exponent, "1", "assumed", None, (self.group.source,), note)
        }

    def _parameter(self, term: Term) -> Parameter:
        """One estimate; the group's own note stands on its first term."""
        if term.name in self.lent:
            lent = self.lent[term.name]
            value = float(f"{lent.value:.5g}")
            return Parameter(value, term.unit, "transferred", None, (self.group.source,), lent.why)
        estimate = self.found[term.name]
        value = float(f"{estimate.value:.5g}")
        error = None
        if estimate.standard_error is not None:
            error = float(f"{estimate.standard_error:.2g}")
        status = "" if estimate.status == "ok" else estimate.status
        about = self._note if term is self.form.terms[0] else ""
        note = "; ".join(part for part in (status, about) if part)
        return Parameter(value, term.unit, "fitted", error, (self.group.source,), note)

    @property
    def _note(self) -> str:
        """What the group was fitted to, and what was left out of it."""
        parts = [f"{self.found.errors.rows} rows", self.group.note]
        if self.impossible:
            parts.append(f"left out: {self.impossible} faster than the memory allows")
        if self.group.cached and "cache_cost" in self.values:
            parts.append(self.group.cached)
        return "; ".join(part for part in parts if part)


def fit_group(
    group: Group, device: Accelerator, form: Form, lent: Mapping[str, Lent] | None = None
) -> KernelFit:
    """Fit a form to a group, then again without the optional terms it turns out not to need.

    Terms that are `lent` keep the value given.
    """
    lent = lent or {}
    held = {name: each.value for name, each in lent.items()}
    rows, impossible = _possible(_thinned(group.rows), device)
    cache = l2_bytes(device)
    cold = rows.cached_bytes > 2 * (cache or np.inf)
    if group.cached is not None and cache is not None and not cold.all():
        form = form.with_cache()
    sample = Sample(rows.measured_s, _weights(group, rows, cold), rows.shapes)
    for _ in range(_RETRIES):
        current = form

        def model(values: Mapping[str, float], form: Form = current) -> Array:
            return _model(rows, device, group, form, {**values, **held})

        unknowns = [term.unknown(term.name) for term in form.terms if term.name not in held]
        found = fit(model, unknowns, sample)
        idle = _idle(found, form)
        if not idle:
            break
        form = form.without(idle)
    return KernelFit(group, form, found, impossible, lent)


def profile_with(form: Form, suffix: str, values: Mapping[str, float], device: str) -> Profile:
    """A profile of nothing but the terms of a group."""
    parameters = {
        f"{form.kind}.{name}{suffix}": Parameter(value, "", "fitted")
        for name, value in values.items()
        if name not in CACHE_TERMS
    }
    parameters[f"{form.kind}.exponent"] = Parameter(form.exponent, "1", "assumed")
    return Profile("fit", device, "fit", "", parameters=parameters)


def _model(
    rows: Rows, device: Accelerator, group: Group, form: Form, values: Mapping[str, float]
) -> Array:
    roofs = Roofs(device, profile_with(form, group.suffix, values, device.id))
    total = np.zeros(rows.measured_s.shape)
    for operator in rows.operators:
        counted = _warm(operator, rows, device, values) if "cache_cost" in values else operator
        total = total + operator_time(counted, roofs).total_s
    return total


def _warm(
    operator: Operator, rows: Rows, device: Accelerator, values: Mapping[str, float]
) -> Operator:
    """Bytes from the L2 cache count `cache_cost` of a byte from memory.

    The share read from the cache falls from 1 to 0 around a working set of `cache_share` x L2.
    """
    size = values["cache_share"] * (l2_bytes(device) or 1.0)
    hit = 1.0 / (1.0 + (rows.cached_bytes / size) ** _STEEPNESS)
    cost = 1.0 - hit * (1.0 - values["cache_cost"])
    return replace(
        operator,
        weight_bytes=operator.weight_bytes * cost,
        kv_read_bytes=operator.kv_read_bytes * cost,
    )


def _weights(group: Group, rows: Rows, cold: Mask) -> Array:
    if group.cached is not None:
        return np.where(cold, _COLD_WEIGHT, 1.0)
    tall = rows.operators[0].rows
    weights = np.where(tall > _DECODE_ROWS, _PREFILL_WEIGHT, 1.0)
    return np.asarray(np.broadcast_to(weights, rows.measured_s.shape))


def _thinned(rows: Rows) -> Rows:
    count = rows.measured_s.size
    if count <= MOST_ROWS:
        return rows
    chosen = np.random.default_rng(0).choice(count, MOST_ROWS, replace=False)
    return rows.where(np.sort(chosen))


def _possible(rows: Rows, device: Accelerator) -> tuple[Rows, int]:
    """Leave out what is faster than its cold bytes at full bandwidth; the rest, and the count."""
    bandwidth, cache = device.memory_bandwidth_bytes_per_s, l2_bytes(device)
    if bandwidth is None or cache is None:
        return rows, 0
    read = sum((part.weight_bytes + part.kv_read_bytes for part in rows.operators), np.zeros(()))
    cold = rows.cached_bytes > 2 * cache
    bad = cold & (read / rows.measured_s > _IMPOSSIBLE * bandwidth)
    return (rows.where(~bad), int(bad.sum())) if bad.any() else (rows, 0)


def _idle(found: Fit, form: Form) -> set[str]:
    """Optional terms that the data doesn't need."""
    idle = set()
    for term in form.terms:
        if term.name not in found.values:  # lent
            continue
        status = found[term.name].status
        if term.optional and status in ("at lower bound", "not identifiable"):
            idle.add(term.name)
        if term.needs and not term.optional and status == "not identifiable":
            idle.add(term.needs)
        if term.name == "cache_cost" and status == "at upper bound":
            idle.add("cache_share")
    return idle
