"""Patience: warm-up that is tested, samples until the median is known, never much over the budget."""

from __future__ import annotations

import time

from roofcast.calibrate.clock import Call, Effort, HostClock, measure
from roofcast.calibrate.samples import median


class Scripted:
    """A clock that reads its laps from a list, then repeats the last one; it spends no time."""

    name = "script"

    def __init__(self, script: list[float]) -> None:
        self.script = script
        self.taken = 0

    def laps(self, call: Call, count: int, before: Call | None = None) -> list[float]:
        indices = range(self.taken, self.taken + count)
        self.taken += count
        return [self.script[min(i, len(self.script) - 1)] for i in indices]


def nothing() -> None:
    pass


def test_slow_first_calls_are_not_samples() -> None:
    clock = Scripted([9.0, 3.0, 2.0, 1.5, *[1.0] * 8])
    timing = measure(nothing, clock, Effort(budget_s=200.0))
    assert timing.steady
    assert set(timing.samples_s) == {1.0}


def test_a_stable_call_is_not_measured_longer_than_needed() -> None:
    clock = Scripted([1.0])
    timing = measure(nothing, clock, Effort(budget_s=1000.0, least=7, most=400))
    assert 7 < len(timing.samples_s) <= 12


def test_a_scattered_call_is_measured_up_to_the_limit() -> None:
    clock = Scripted([1.0, 2.0, 3.0] * 200)
    timing = measure(nothing, clock, Effort(budget_s=1000.0, least=7, most=30))
    assert 30 <= len(timing.samples_s) < 36


def test_the_budget_ends_a_measurement() -> None:
    start = time.perf_counter()
    timing = measure(lambda: time.sleep(0.002), HostClock(), Effort(budget_s=0.1, interval=0.0))
    assert time.perf_counter() - start < 0.5
    assert len(timing.samples_s) >= 7


def test_a_slow_call_gets_three_samples_rather_than_seven() -> None:
    timing = measure(lambda: time.sleep(0.03), HostClock(), Effort(budget_s=0.05))
    assert 3 <= len(timing.samples_s) < 7


def test_host_clock_reads_seconds_and_waits_for_the_device() -> None:
    waits: list[float] = []
    clock = HostClock(lambda: waits.append(0.0) or time.sleep(0.01))
    laps = clock.laps(nothing, 3)
    assert len(waits) == 3
    assert 0.01 <= median(laps) < 0.2


def test_what_runs_before_a_call_is_not_timed() -> None:
    laps = HostClock().laps(nothing, 3, before=lambda: time.sleep(0.02))
    assert max(laps) < 0.01
