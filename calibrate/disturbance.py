"""Was the machine quiet? Signs of interference, in words, with what to do about each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence

from roofcast.calibrate.samples import FAILED, STATE, Measurement, median, quantile

# Shares beyond which a warning is due. A quiet two-core machine shows 0 to 2 % of other processes,
# spreads of 3 to 8 % and, on a virtual machine, a reference that wanders by 10 to 15 % over minutes:
# that is undone (see steadying), more is not to be relied on.
OTHERS_LIMIT = 0.05
STOLEN_LIMIT = 0.02
SPREAD_LIMIT = 0.25
DRIFT_LIMIT = 0.20
CLOCK_LIMIT = 0.10
UNSTEADY_LIMIT = 0.20
LOAD_LIMIT = 0.5

_AGAIN = "then calibrate again"


def warnings_of(
    measured: Sequence[Measurement], conditions: Mapping[str, str | float]
) -> tuple[str, ...]:
    """Everything that speaks against trusting the measurements; empty on a quiet machine."""
    usable = [entry for entry in measured if entry.samples_s]
    if not usable:
        return ("nothing was measured",)
    checks: tuple[Callable[[Sequence[Measurement]], str | None], ...] = (
        others,
        stolen,
        spreads,
        drift,
        unsteady,
    )
    states = [entry for entry in measured if entry.kind == STATE]
    found = [check(usable) for check in checks]
    found += [throttling(states), clocks(states), company(states), load(conditions)]
    found += [passive(conditions), failures(measured)]
    return tuple(text for text in found if text)


def failures(measured: Sequence[Measurement]) -> str | None:
    """Tasks that went wrong, and why."""
    failed = [e.outcome for e in measured if e.outcome.startswith(FAILED)]
    if not failed:
        return None
    tasks = "1 task was" if len(failed) == 1 else f"{len(failed)} tasks were"
    return f"{tasks} not measured, {', '.join(sorted(set(failed)))}"


def others(measured: Sequence[Measurement]) -> str | None:
    """Other processes took processor time."""
    share = _mean([entry.others for entry in measured])
    if not share > OTHERS_LIMIT:
        return None
    return (
        f"disturbed: other processes used {share:.0%} of the processors during the measurements; "
        f"stop them or pin them to other cores, {_AGAIN}"
    )


def stolen(measured: Sequence[Measurement]) -> str | None:
    """The hypervisor gave processor time to other guests."""
    share = _mean([entry.stolen for entry in measured])
    if not share > STOLEN_LIMIT:
        return None
    return (
        f"disturbed: the hypervisor withheld {share:.1%} of the processors (steal time); "
        f"use a dedicated machine or a quieter hour, {_AGAIN}"
    )


def spreads(measured: Sequence[Measurement]) -> str | None:
    """Samples of one and the same thing scatter."""
    typical = median([entry.spread for entry in measured if len(entry.samples_s) >= 5])
    if not typical > SPREAD_LIMIT:
        return None
    return (
        f"disturbed: repeated samples of one kernel typically spread by {typical:.0%}; "
        f"something shares this device's processors, memory or power, stop it, {_AGAIN}"
    )


def drift(measured: Sequence[Measurement]) -> str | None:
    """The reference kernel was not as fast at one time as at another."""
    turns = [entry.median_s for entry in measured if entry.kind == "reference"]
    if len(turns) < 3:
        return None
    change = (quantile(turns, 0.9) - quantile(turns, 0.1)) / median(turns)
    if change <= DRIFT_LIMIT:
        return None
    return (
        f"disturbed: the same reference kernel varied by {change:.0%} during the calibration; "
        f"look for other load, clocks that change or heat, {_AGAIN}"
    )


def unsteady(measured: Sequence[Measurement]) -> str | None:
    """Warm-ups did not come to rest."""
    share = sum(not entry.steady for entry in measured) / len(measured)
    if share <= UNSTEADY_LIMIT:
        return None
    return (
        f"disturbed: {share:.0%} of the warm-ups did not come to rest in their time; "
        f"the medians of those tasks are less certain"
    )


def throttling(measured: Sequence[Measurement]) -> str | None:
    """The device ran below its clocks while it was busy."""
    reasons = [str(entry.facts.get("throttled_by", "nothing")) for entry in measured]
    held = sorted({word for reason in reasons for word in reason.split(", ")} - {"nothing"})
    if not held:
        return None
    return f"the device was throttled ({', '.join(held)}): it measures slower than it can be"


def clocks(measured: Sequence[Measurement]) -> str | None:
    """The clock of a busy device fell."""
    known = [float(e.facts["sm_clock_hz"]) for e in measured if "sm_clock_hz" in e.facts]
    if not known or min(known) >= (1 - CLOCK_LIMIT) * max(known):
        return None
    return (
        f"disturbed: the clock of the busy device varied from {min(known) / 1e6:.0f} to "
        f"{max(known) / 1e6:.0f} MHz; lock the clocks or cool it, {_AGAIN}"
    )


def company(measured: Sequence[Measurement]) -> str | None:
    """Other processes computed on the device."""
    most = max((float(e.facts.get("processes", 1.0)) for e in measured), default=1.0)
    if most <= 1:
        return None
    return f"disturbed: {most - 1:.0f} other processes were on this device; stop them, {_AGAIN}"


def load(conditions: Mapping[str, str | float]) -> str | None:
    """Others were busy when it began."""
    average = float(conditions.get("load_average", math.nan))
    cores = os.cpu_count() or 1
    if not average > LOAD_LIMIT * cores:
        return None
    return f"the load average was {average:.1f} on {cores} processors when the calibration began"


def passive(conditions: Mapping[str, str | float]) -> str | None:
    """OpenMP was told to sleep while it waits."""
    if str(conditions.get("omp_wait_policy", "")).upper() != "PASSIVE":
        return None
    return (
        "threads slept instead of spinning between parallel regions (OMP_WAIT_POLICY=PASSIVE), as "
        "others were using the processors; a quiet machine is measured without, and faster"
    )


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
