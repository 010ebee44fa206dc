"""A served trace in the Trace Event Format, for chrome://tracing and ui.perfetto.dev.

Three processes: the engine's steps; the sequences it runs, each in a lane that is its own from
admission to its last token (or to preemption); counters of running, waiting and cache use. Times are in
microseconds from the first arrival. Format: "Trace Event Format", Google, phases M, X, i and C.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from roofcast.simulator.batching import Served

Event = dict[str, Any]
_STEPS, _SEQUENCES, _COUNTERS = 1, 2, 3
_US = 1e6


@dataclass(frozen=True, slots=True)
class Stay:
    """A request among the running ones, from admission to its end or its preemption."""

    request: int
    begin_s: float
    end_s: float
    preempted: bool


def chrome_trace(served: Served) -> dict[str, Any]:
    """The whole document, ready for `json.dump`."""
    events = [*_names(), *_steps(served), *_sequences(served), *_counters(served)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def stays(served: Served) -> list[Stay]:
    """Every stay of every request, by the time it begins."""
    ends: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    begins: defaultdict[int, list[float]] = defaultdict(list)
    for index, time in enumerate(served.scheduled_s.tolist()):
        begins[index].append(time)
    for time, index in _pairs(served.returned.time_s, served.returned.request):
        begins[index].append(time)
    for time, index in _pairs(served.preempted.time_s, served.preempted.request):
        ends[index].append((time, True))
    for index, time in enumerate(served.last_token_s.tolist()):
        ends[index].append((time, False))
    found = [
        Stay(index, begin, max(end, begin), preempted)
        for index, times in begins.items()
        for begin, (end, preempted) in zip(times, ends[index], strict=True)
    ]
    return sorted(found, key=lambda stay: (stay.begin_s, stay.request))


def _pairs(times: Any, indices: Any) -> Iterator[tuple[float, int]]:
    return zip(times.tolist(), indices.tolist(), strict=True)


def _names() -> Iterator[Event]:
    named = {_STEPS: "engine steps", _SEQUENCES: "running sequences", _COUNTERS: "state"}
    for process, name in named.items():
        yield _event("M", "process_name", process, args={"name": name})
        yield _event("M", "process_sort_index", process, args={"sort_index": process})


def _steps(served: Served) -> Iterator[Event]:
    start, steps = float(served.requests.arrival_s[0]), served.timeline
    for begin, end, decoding, read in zip(
        steps.begin_s.tolist(),
        steps.end_s.tolist(),
        steps.decoding.tolist(),
        steps.prompt_tokens.tolist(),
        strict=True,
    ):
        name = "decode" if not read else "prompt" if not decoding else "decode and prompt"
        what = {"decode tokens": decoding, "prompt tokens": read}
        yield _span(name, (begin - start, end - start), _STEPS, 1, what)


def _sequences(served: Served) -> Iterator[Event]:
    start = float(served.requests.arrival_s[0])
    first, requests = served.first_token_s.tolist(), served.requests
    for stay, lane in _lanes(stays(served)):
        index = stay.request
        span = (stay.begin_s - start, stay.end_s - start)
        what = {
            "input tokens": int(requests.input_tokens[index]),
            "output tokens": int(requests.output_tokens[index]),
            "waited ms": (stay.begin_s - float(requests.arrival_s[index])) * 1e3,
            "preempted": stay.preempted,
        }
        yield _span(f"request {index}", span, _SEQUENCES, lane, what)
        if stay.begin_s <= first[index] <= stay.end_s:
            at = (first[index] - start) * _US
            yield _event("i", "first token", _SEQUENCES, lane, ts=at, s="t")


def _lanes(intervals: list[Stay]) -> Iterator[tuple[Stay, int]]:
    """Each stay with the lowest lane that is free when it begins."""
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    lanes = 0
    for stay in intervals:
        while busy and busy[0][0] <= stay.begin_s:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lanes += 1
            lane = lanes
        heapq.heappush(busy, (stay.end_s, lane))
        yield stay, lane


def _counters(served: Served) -> Iterator[Event]:
    """One sample where a value changes: a viewer draws steps."""
    start, steps = float(served.requests.arrival_s[0]), served.timeline
    series = {"running": steps.running, "waiting": steps.waiting, "KV blocks": steps.kv_blocks}
    begins = ((steps.begin_s - start) * _US).tolist()
    end = (float(steps.end_s[-1]) - start) * _US
    for name, values in series.items():
        before = None
        for at, value in zip(begins, values.tolist(), strict=True):
            if value != before:
                yield _event("C", name, _COUNTERS, ts=at, args={name: value})
            before = value
        yield _event("C", name, _COUNTERS, ts=end, args={name: 0})


def _span(name: str, span_s: tuple[float, float], process: int, lane: int, args: Event) -> Event:
    begin, end = span_s
    return _event("X", name, process, lane, ts=begin * _US, dur=(end - begin) * _US, args=args)


def _event(phase: str, name: str, process: int, lane: int = 0, **more: Any) -> Event:
    return {"ph": phase, "name": name, "pid": process, "tid": lane, **more}
