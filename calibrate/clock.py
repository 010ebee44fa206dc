"""How long a call takes: a clock per kind of device, and the patience to wait for a stable answer.

A measurement warms up until two successive windows have the same median, then repeats until the
interval of the median is narrow or its time is over. Whether it came to rest is tested and recorded,
never assumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from roofcast.calibrate.samples import median, median_interval

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]

_FEWEST = 3  # samples, however slow a call


class Clock(Protocol):
    """Times successive calls on one device."""

    @property
    def name(self) -> str:
        """What it reads, in words."""
        ...

    def laps(self, call: Call, count: int, before: Call | None = None) -> list[float]:
        """Seconds of each of `count` calls, in order; `before` runs before each, untimed."""
        ...


@dataclass(frozen=True, slots=True)
class HostClock:
    """The monotonic clock, waiting for the device after each call where it runs asynchronously."""

    synchronize: Callable[[], None] | None = None
    name: str = "monotonic clock"

    def laps(self, call: Call, count: int, before: Call | None = None) -> list[float]:
        """Seconds of each call, the wait for the device included."""
        seconds = []
        for _ in range(count):
            if before is not None:
                before()
            start = time.perf_counter()
            call()
            if self.synchronize is not None:
                self.synchronize()
            seconds.append(time.perf_counter() - start)
        return seconds


@dataclass(frozen=True, slots=True)
class EventClock:
    """Device events between calls that are issued without waiting, as an engine issues them."""

    name: str = "device events"

    def laps(self, call: Call, count: int, before: Call | None = None) -> list[float]:
        """Seconds between the events around each call; the host may be what they wait for."""
        import torch

        def event() -> torch.cuda.Event:
            return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call] # untyped

        starts, ends = [], []
        for _ in range(count):
            if before is not None:
                before()
            starts.append(event())
            starts[-1].record()
            call()
            ends.append(event())
            ends[-1].record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(starts, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class GraphClock:
    """Device events around a captured graph of `unroll` calls: kernels without their dispatch.

    Each lap replays the graph once and counts as the mean of its calls. The call is free to use
    another buffer each time; the capture fixes the sequence. Nothing can run between them untimed.
    """

    unroll: int = 20
    name: str = "device events around graph replays"

    def laps(self, call: Call, count: int, before: Call | None = None) -> list[float]:
        """Seconds a call, averaged over each replay."""
        import torch

        del before
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(self.unroll):
                call()
        replays = EventClock().laps(graph.replay, count + 1)
        return [seconds / self.unroll for seconds in replays[1:]]


def clock_for(device: torch.device) -> Clock:
    """The clock of whole decode steps on a device."""
    if device.type == "cuda":
        return EventClock()
    if device.type == "mps":
        import torch

        return HostClock(torch.mps.synchronize, "monotonic clock, device synchronised")
    return HostClock()


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try: seconds to spend, how narrow the median's interval must be, samples at least.

    `steady` is how far the medians of two successive windows may differ at rest.
    """

    budget_s: float
    interval: float = 0.02
    least: int = 7
    most: int = 400
    steady: float = 0.05

    def halved(self) -> Effort:
        """Half the time for the same."""
        return Effort(self.budget_s / 2, self.interval, self.least, self.most, self.steady)


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of one call, after warm-up; `steady` where the warm-up came to rest."""

    samples_s: tuple[float, ...]
    steady: bool


def measure(call: Call, clock: Clock, effort: Effort, before: Call | None = None) -> Timing:
    """Time a call until its median is known to `effort.interval`, or the budget ends.

    Warming up takes a third of the budget at most. A call so slow that `effort.least` samples would
    outlast the budget twice over gets three. `before` runs before each call, untimed.
    """

    def laps(count: int) -> list[float]:
        return clock.laps(call, count, before)

    start = time.perf_counter()
    steady = _warm_up(laps, effort)
    samples: list[float] = []
    block = max(1, effort.least // 2)
    while len(samples) < effort.most:
        samples += laps(1 if _is_slow(samples, effort) else block)
        spent = time.perf_counter() - start
        if spent >= effort.budget_s and len(samples) >= effort.least:
            break
        if spent >= 2 * effort.budget_s and len(samples) >= _FEWEST:
            break
        low, high = median_interval(samples)
        if len(samples) > effort.least and high - low <= effort.interval * median(samples):
            break
    return Timing(tuple(samples), steady)


def _is_slow(samples: Sequence[float], effort: Effort) -> bool:
    return not samples or median(samples) * effort.least > effort.budget_s


def _warm_up(laps: Callable[[int], list[float]], effort: Effort) -> bool:
    """Run windows until two successive ones agree; False where they didn't in their time.

    The first call pays for first touches and compilation and is never part of a window.
    """
    start = time.perf_counter()
    (first,) = laps(1)
    window = 3 if first * 20 < effort.budget_s else 1
    earlier = median(laps(window))
    while time.perf_counter() - start < effort.budget_s / 3:
        later = median(laps(window))
        if abs(later - earlier) <= effort.steady * earlier:
            return True
        earlier = later
    return False
