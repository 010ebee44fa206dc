"""Before and after an optimisation: the gain, its noise, and what the declared change allows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roofcast.calibrate.audit.audit import Audited, audit
from roofcast.calibrate.audit.changes import Change, Saving, Side
from roofcast.calibrate.audit.measured import milliseconds
from roofcast.calibrate.audit.ranges import credible
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.record import Record
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import Profile

Verdict = Literal["consistent", "below what is available", "not possible by this change alone"]

_REACHED = 0.7
"""Share of the available saving from which a change delivered what it can."""

_MORE = 1.3
_CONFIDENCE = 1.96
_BATCH_APART, _LENGTH_APART = 0.15, 0.10


@dataclass(frozen=True, slots=True)
class Gain:
    """One point before and after. Gains are of speed: before / after - 1, per output token.

    `gain_low` to `gain_high` is the 95 % interval of the measured gain. `available` is what the
    forecast gives the declared change, None where that hangs on something unknown; `possible` is the
    most it can bring. `share` is the part of the available saving of time that was reached.
    """

    before: Audited
    after: Audited
    before_s: float
    after_s: float
    gain: float
    gain_low: float
    gain_high: float
    available: float | None
    possible: float
    share: float | None
    verdict: Verdict
    words: str


def compare(
    before: Sequence[Record],
    after: Sequence[Record],
    change: Change,
    given: Conditions,
    profile: str | Path | Profile | None = None,
) -> tuple[Gain, ...]:
    """Gains of every point measured on both sides; `given` says how the run before was set up.

    InputError where no point of one side has a partner on the other.
    """
    old = _usable(audit(before, given, profile))
    new = _usable(audit(after, change.after(given), profile))
    found = [_gain(mine, theirs, change) for mine, theirs in _pairs(old, new)]
    if not found:
        raise InputError(
            "no point was measured before and after: batch and lengths differ "
            f"({_listed(old)} before, {_listed(new)} after)"
        )
    return tuple(found)


def _usable(points: Sequence[Audited]) -> list[Audited]:
    return [
        each
        for each in points
        if each.step is not None and each.cost is not None and each.cost.counted
    ]


def _listed(points: Sequence[Audited]) -> str:
    keys = dict.fromkeys(" x ".join(f"{value:,.0f}" for value in _key(each)) for each in points)
    return ", ".join([*keys][:4]) or "none"


def _key(point: Audited) -> tuple[float, float, float]:
    """Batch as asked for or else as it was, prompt and reply."""
    record = point.record
    batch = record.value("requested") or record.value("batch") or 0.0
    return batch, record.value("input_tokens") or 0.0, record.value("output_tokens") or 0.0


def _pairs(
    before: Sequence[Audited], after: Sequence[Audited]
) -> list[tuple[list[Audited], list[Audited]]]:
    """Repeats of a point before, with its repeats after."""
    groups: list[tuple[list[Audited], list[Audited]]] = []
    for mine in before:
        held = next((old for old, _ in groups if _alike(old[0], mine)), None)
        if held is not None:
            held.append(mine)
        else:
            groups.append(([mine], [each for each in after if _alike(mine, each)]))
    return [(old, new) for old, new in groups if new]


def _alike(one: Audited, other: Audited) -> bool:
    limits = (_BATCH_APART, _LENGTH_APART, _LENGTH_APART)
    return all(
        abs(a - b) <= limit * max(a, b, 1.0)
        for a, b, limit in zip(_key(one), _key(other), limits, strict=True)
    )


def _gain(before: Sequence[Audited], after: Sequence[Audited], change: Change) -> Gain:
    old_s, old_noise = _mean(before)
    new_s, new_noise = _mean(after)
    gain = old_s / new_s - 1.0
    spread = _CONFIDENCE * (1.0 + gain) * math.hypot(old_noise, new_noise)
    old, new = _side(before[0], old_s), _side(after[0], new_s)
    saving = change.saving(old, new)
    available = None if saving.available_s is None else _speed(old_s, saving.available_s)
    possible = max(_speed(old_s, saving.most_s), available or 0.0)
    share = (old_s - new_s) / saving.available_s if saving.available_s else None
    low, high = gain - spread, gain + spread
    verdict = judge(low, high, available, possible)
    return Gain(
        before=before[0],
        after=after[0],
        before_s=old_s,
        after_s=new_s,
        gain=gain,
        gain_low=low,
        gain_high=high,
        available=available,
        possible=possible,
        share=share if available is None or available > 0 else None,
        verdict=verdict,
        words=_words(verdict, old, new, saving, change),
    )


def judge(low: float, high: float, available: float | None, possible: float) -> Verdict:
    """The verdict on a gain known to lie between two bounds.

    >>> judge(0.18, 0.22, available=0.2, possible=0.3)
    'consistent'
    >>> judge(0.45, 0.5, available=0.2, possible=0.3)
    'not possible by this change alone'
    >>> judge(0.02, 0.05, available=0.2, possible=0.3)
    'below what is available'
    """
    if low > possible:
        return "not possible by this change alone"
    if high < 0.0 or (available is not None and high < _REACHED * available):
        return "below what is available"
    return "consistent"


def _speed(before_s: float, saved_s: float) -> float:
    """The gain of speed that a saving of time brings."""
    rest = before_s - saved_s
    return before_s / rest - 1.0 if rest > 0 else math.inf


def _side(point: Audited, token_s: float) -> Side:
    assert point.placed is not None, "only audited points get here"
    assert point.cost is not None, "only audited points get here"
    return Side(point.placed, point.cost, token_s)


def _token_s(point: Audited) -> float:
    """Seconds for each token of a sequence."""
    assert point.step is not None, "only audited points get here"
    return point.step.step_s / point.step.tokens


def _mean(points: Sequence[Audited]) -> tuple[float, float]:
    """Seconds a token and their relative standard error: from repeats, else within the one run.

    Scatter within a run says nothing of what differs between runs, so that is added to it.
    """
    times = [_token_s(point) for point in points]
    middle = statistics.fmean(times)
    if len(times) > 1:
        return middle, statistics.stdev(times) / middle / math.sqrt(len(times))
    record = points[0].record
    deviation, samples = record.value("tpot_sd_s"), record.value("samples")
    within = deviation / middle / math.sqrt(samples) if deviation and samples else 0.0
    return middle, math.hypot(within, credible("run_to_run").most)


def _words(verdict: Verdict, old: Side, new: Side, saving: Saving, change: Change) -> str:
    """The verdict with its numbers."""
    note = f" ({saving.note})" if saving.note else ""
    saved = old.token_s - new.token_s
    did = f"{milliseconds(abs(saved))} were {'saved' if saved >= 0 else 'lost'}"
    if verdict == "not possible by this change alone":
        return (
            f"{change.words} can save {milliseconds(saving.most_s)} a token at the most{note}, "
            f"yet {did}: something else changed too"
        )
    if saving.available_s is None:
        return f"{change.words} can save up to {milliseconds(saving.most_s)} a token{note}; {did}"
    claim = f"{change.words} should save {milliseconds(max(saving.available_s, 0.0))} a token{note}"
    if verdict == "consistent" and saved > _MORE * max(saving.available_s, 0.0):
        return (
            f"{claim}; {did}, which is possible where the time it acts on was slower than forecast"
        )
    return f"{claim}; {did}"
