"""The audit of measured points: floor, forecast, measurement, where the time went, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roofcast.calibrate.audit.costs import Cost, costs
from roofcast.calibrate.audit.evidence import Evidence, Suspect
from roofcast.calibrate.audit.impossible import impossible, sooner_though_longer
from roofcast.calibrate.audit.measured import Step, measured_step, waterfall
from roofcast.calibrate.audit.placing import Placed, Placer, Unplaced
from roofcast.calibrate.audit.suspects import NOT_REACHED, suspects
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.record import FLAG_WORDS, Record
from roofcast.hardware.profile import Profile

IMPOSSIBLE: Final[Mapping[str, str]] = {
    "faster_than_physics": "faster than moving the bytes or doing the arithmetic at full speed",
    "more_than_physics": "more tokens/s than the device has arithmetic or bandwidth for",
    "prompt_faster_than_physics": "the prompt was read faster than its arithmetic takes",
    "does_not_fit": "the sequences don't fit in memory together",
    "cut_short": "longer than another run, yet sooner done",
    "times_disagree": "the times of one run don't add up",
}
"""Flags of what can't be true as labelled."""

WORDS: Final[Mapping[str, str]] = {
    **FLAG_WORDS,
    **IMPOSSIBLE,
    "slower_than_forecast": "slower than the forecast's interval",
    "faster_than_floor": "below the floor, unless the cache is narrower or experts are used less "
    "evenly than assumed (state --kv-dtype)",
    "faster_than_forecast": "faster than the forecast's interval, but not than physics",
    "batch_not_reached": "fewer requests in flight than asked for",
    "over_admission": "more sequences than memory holds",
    "extrapolated": "outside what the profile was measured on",
    "step_from_latency": "the step follows from a whole latency and a forecast prefill",
    "step_from_throughput": "the step follows from a token rate that includes prefill",
    "contradiction": "file and flags say different things",
    "not_audited": "can't be audited",
}
"""Every flag in words."""


@dataclass(frozen=True, slots=True)
class Audited:
    """One point with its verdict. `cost`, `step` and what follows from them are None where unknown."""

    record: Record
    placed: Placed | None
    cost: Cost | None
    step: Step | None
    flags: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    reason: str = ""

    @property
    def impossible(self) -> bool:
        """Whether it can't be true as labelled."""
        return any(flag in IMPOSSIBLE for flag in self.flags)

    @property
    def mbu(self) -> float | None:
        """Bytes of the step over the measured time and the peak bandwidth."""
        if self.cost is None or self.step is None or not self.cost.counted:
            return None
        return self.cost.bytes_s / self.step.step_s

    @property
    def mfu(self) -> float | None:
        """FLOPs of the step over the measured time and the peak."""
        if self.cost is None or self.step is None or not self.cost.counted:
            return None
        return self.cost.flops_s / self.step.step_s

    @property
    def waterfall(self) -> Mapping[str, float] | None:
        """Seconds of the measured step by part; they sum to it."""
        if self.placed is None or self.cost is None or self.step is None or not self.cost.counted:
            return None
        return waterfall(self.placed, self.cost, self.step)


def audit(
    records: Sequence[Record],
    given: Conditions,
    profile: str | Path | Profile | None = None,
) -> tuple[Audited, ...]:
    """Audit records under what a user says of them; `profile` is a file, "ideal", or the device's own.

    Raises an InputError where the model, the device or something else has to be said first.
    """
    placed = Placer(given, profile).all(records)
    good = [each for each in placed if isinstance(each, Placed)]
    found = iter(_judged(good, costs(good)))
    return tuple(next(found) if isinstance(each, Placed) else _unjudged(each) for each in placed)


def _unjudged(each: Unplaced) -> Audited:
    flags = (*each.record.flags, "not_audited")
    return Audited(each.record, None, None, None, flags, (), each.reason)


def _judged(placed: Sequence[Placed], found: Sequence[Cost | Unplaced]) -> list[Audited]:
    points = [
        (each, cost) for each, cost in zip(placed, found, strict=True) if isinstance(cost, Cost)
    ]
    short, runs = sooner_though_longer(points), _runs(points)
    gathered = [_evidence(*point) for point in points]
    verdicts = iter(
        _verdict(point, [gathered[row] for row in runs[index]], short.get(index, ""))
        for index, point in enumerate(gathered)
    )
    return [next(verdicts) if isinstance(cost, Cost) else _unjudged(cost) for cost in found]


def _evidence(placed: Placed, cost: Cost) -> Evidence:
    step = measured_step(placed, cost) if cost.counted or placed.record.tpot_s else None
    return Evidence(placed, cost, step, tuple(impossible(placed, cost, step)))


def _runs(points: Sequence[tuple[Placed, Cost]]) -> list[list[int]]:
    """For each point those of the same file and set-up, itself included."""
    groups: dict[tuple[str, int], list[int]] = {}
    keys = [(placed.record.file, id(placed.setup)) for placed, _ in points]
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return [groups[key] for key in keys]


def _verdict(point: Evidence, run: Sequence[Evidence], cut_short: str) -> Audited:
    known = [each for each in run if each.cost.counted]
    found = suspects(point, known) if point.cost.counted else []
    if cut_short:
        words = f"replies ended before their full length: {cut_short}"
        rest = [suspect for suspect in found if suspect.cause != "ended_early"]
        found = [Suspect("ended_early", 0.99, words), *rest]
    flags = list(dict.fromkeys(_flags(point, cut_short)))
    return Audited(
        record=point.placed.record,
        placed=point.placed,
        cost=point.cost,
        step=point.step,
        flags=tuple(flags),
        suspects=tuple(found),
    )


def _flags(point: Evidence, cut_short: str) -> list[str]:
    """Everything notable, what can't be true first."""
    record, cost = point.placed.record, point.cost
    found = [each.kind for each in point.found]
    found += ["cut_short"] if cut_short else []
    if point.step is not None and cost.counted:
        found += ["slower_than_forecast"] if point.slow else []
        found += ["faster_than_floor"] if point.below_floor and not found else []
        found += ["faster_than_forecast"] if point.fast and not found else []
        if point.step.basis != "tpot":
            found.append(f"step_from_{point.step.basis}")
    asked, flying = record.value("requested"), record.value("batch")
    if asked and flying and flying < NOT_REACHED * asked:
        found.append("batch_not_reached")
    wanted = max(asked or 0.0, flying or 0.0) / (point.placed.replicas or 1.0)
    if cost.resident is not None and cost.counted and wanted > cost.resident:
        found.append("over_admission")
    found += ["extrapolated"] if cost.extrapolates else []
    found += ["contradiction"] if point.placed.contradicted else []
    return [*found, *record.flags]
