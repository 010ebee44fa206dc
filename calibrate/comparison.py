"""Two calibrations side by side: what changed, and whether by more than their noise.

A parameter has changed when the difference exceeds three of its combined standard errors. Raw samples
tell more, where both calibrations kept them: the same task measured twice has one ratio, and the median
of the ratios of a kind has an interval that needs no model at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofcast.calibrate import journal
from roofcast.calibrate.calibration import journal_path
from roofcast.calibrate.samples import Measurement, median, median_interval
from roofcast.hardware import profile_store
from roofcast.hardware.profile import Parameter, Profile

SIGNIFICANT = 3.0
"""Standard errors beyond which a parameter counts as changed: chance does that 3 times in 1000."""

_VOLATILE = ("date", "load_average", "clock_hz", "power_w", "temperature_c", "sm_clock_hz",
             "memory_clock_hz")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """One parameter in both profiles. `deviation` is in combined standard errors; NaN if unknown."""

    name: str
    before: float
    after: float
    deviation: float

    @property
    def ratio(self) -> float:
        """After over before; infinite where it was 0."""
        return self.after / self.before if self.before else math.inf

    @property
    def changed(self) -> bool | None:
        """Beyond noise or not; None where a standard error is missing."""
        return None if math.isnan(self.deviation) else abs(self.deviation) > SIGNIFICANT


@dataclass(frozen=True, slots=True)
class KindChange:
    """The same tasks of one kind, measured in both: median of after / before, 95 % interval."""

    kind: str
    tasks: int
    ratio: float
    low: float
    high: float

    @property
    def changed(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1.0 or self.high < 1.0


@dataclass(frozen=True)
class Comparison:
    """Everything that differs between two profiles."""

    before: Profile
    after: Profile
    conditions: tuple[tuple[str, object, object], ...]
    roofs: tuple[ParameterChange, ...]
    parameters: tuple[ParameterChange, ...]
    kinds: tuple[KindChange, ...]


def compare_files(before: str | Path, after: str | Path) -> Comparison:
    """Compare two profiles, and their raw samples where both lie beside them."""
    paths = (Path(before), Path(after))
    first, second = (profile_store.read(path) for path in paths)
    journals = [journal_path(path) for path in paths]
    if all(path.is_file() for path in journals):
        old, new = (journal.read(path).measured for path in journals)
        return compare(first, second, old, new)
    return compare(first, second)


def compare(
    before: Profile,
    after: Profile,
    measured_before: Sequence[Measurement] = (),
    measured_after: Sequence[Measurement] = (),
) -> Comparison:
    """What changed from one profile to the other."""
    names = [name for name in before.parameters if name in after.parameters]
    roofs = [name for name in before.roofs if name in after.roofs]
    return Comparison(
        before=before,
        after=after,
        conditions=changed_conditions(before.conditions, after.conditions),
        roofs=tuple(
            ParameterChange(name, before.roofs[name], after.roofs[name], math.nan) for name in roofs
        ),
        parameters=tuple(
            parameter_change(name, before.parameters[name], after.parameters[name])
            for name in names
        ),
        kinds=kind_changes(measured_before, measured_after),
    )


def parameter_change(name: str, before: Parameter, after: Parameter) -> ParameterChange:
    """(after - before) / sqrt(se_before^2 + se_after^2).

    >>> one, two = Parameter(1.0, "s", "fitted", 0.3), Parameter(2.0, "s", "fitted", 0.4)
    >>> parameter_change("host.step_s", one, two).deviation
    2.0
    """
    deviation = math.nan
    if before.standard_error is not None and after.standard_error is not None:
        spread = math.hypot(before.standard_error, after.standard_error)
        deviation = (after.value - before.value) / spread if spread else math.nan
    return ParameterChange(name, before.value, after.value, deviation)


def kind_changes(
    before: Sequence[Measurement], after: Sequence[Measurement]
) -> tuple[KindChange, ...]:
    """Ratios of the medians of tasks that both measured, by kind."""
    known = {entry.task.key: entry for entry in before if entry.samples_s}
    ratios: dict[str, list[float]] = {}
    for entry in after:
        old = known.get(entry.task.key)
        if old is not None and entry.samples_s:
            ratios.setdefault(entry.kind, []).append(entry.median_s / old.median_s)
    return tuple(
        KindChange(kind, len(found), median(found), *median_interval(found))
        for kind, found in ratios.items()
    )


def changed_conditions(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[tuple[str, object, object], ...]:
    """Conditions that differ, those that always do left out; None where one has no such entry."""
    names = [name for name in dict.fromkeys((*before, *after)) if name not in _VOLATILE]
    return tuple(
        (name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )
