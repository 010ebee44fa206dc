"""AIPerf `profile_export.jsonl`: a line a request, summed up into one record while it is read.

Source: ai-dynamo/aiperf, docs/tutorials/working-with-profile-exports.md. Timestamps are ns. The
mean in flight is the time spent in requests over the time from first start to last end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from roofcast.calibrate.benchmark_files.aiperf import _SECONDS
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record

NAME = "AIPerf requests"


def recognises(opening: Opening) -> bool:
    """Metadata with a start and metrics of one request."""
    return opening.holds("metadata", "request_start_ns") and opening.holds("metrics")


@dataclass(slots=True)
class _Sum:
    """Count, sum and sum of squares of one metric."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.count += 1
            self.total += value
            self.squares += value * value

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def deviation(self) -> float:
        return math.sqrt(max(self.squares / self.count - (self.total / self.count) ** 2, 0.0))


@dataclass(slots=True)
class _Run:
    sums: dict[str, _Sum] = field(default_factory=dict)
    requests: int = 0
    failed: int = 0
    busy_s: float = 0.0
    start_s: float = math.inf
    end_s: float = -math.inf


_TIMES = ("inter_token_latency", "time_to_first_token", "request_latency")
_LENGTHS = ("input_sequence_length", "output_sequence_length")


def records(path: Path) -> Iterator[Record]:
    """One record for the whole file: the requests that were measured and neither failed nor stopped."""
    run = _Run(sums={name: _Sum() for name in (*_TIMES, *_LENGTHS)})
    for fields in each_object(path):
        phase = fields.text(("metadata", "benchmark_phase"))
        if phase not in (None, "profiling"):
            continue
        if fields.raw("error") is not None or fields.raw(("metadata", "was_cancelled")) is True:
            run.failed += 1
        else:
            _add(run, fields)
    yield _record(path, run)


def _add(run: _Run, fields: Fields) -> None:
    run.requests += 1
    for name in _LENGTHS:
        run.sums[name].add(fields.number(("metrics", name, "value")))
    for name in _TIMES:
        unit = _SECONDS.get(fields.text(("metrics", name, "unit")) or "ms", 1e-3)
        value = fields.number(("metrics", name, "value"))
        run.sums[name].add(None if value is None else value * unit)
    start = fields.number(("metadata", "request_start_ns"), zero=True)
    end = fields.number(("metadata", "request_end_ns"))
    if start is not None and end is not None:
        run.busy_s += max(end - start, 0.0) / 1e9
        run.start_s = min(run.start_s, start / 1e9)
        run.end_s = max(run.end_s, end / 1e9)


def _record(path: Path, run: _Run) -> Record:
    span = run.end_s - run.start_s
    known = run.requests > 0 and span > 0
    gap = run.sums["inter_token_latency"]
    output = run.sums["output_sequence_length"]
    flags = [*(["failed_requests"] if run.failed else []), *([] if known else ["no_requests"])]
    rate = Quantity(output.total / span, "sum of output_sequence_length / run") if known else None
    return Record(
        file=str(path),
        where="",
        format=NAME,
        batch=Quantity(run.busy_s / span, "time in requests / time of the run") if known else None,
        batch_kind="achieved",
        input_tokens=_mean(run, "input_sequence_length"),
        output_tokens=_mean(run, "output_sequence_length"),
        tpot_s=_mean(run, "inter_token_latency"),
        ttft_s=_mean(run, "time_to_first_token"),
        e2e_s=_mean(run, "request_latency"),
        output_tokens_per_s=rate if output.total else None,
        tpot_sd_s=Quantity(gap.deviation, "over the requests") if gap.count > 1 else None,
        samples=Quantity(float(run.requests), "lines") if known else None,
        flags=tuple(flags),
    )


def _mean(run: _Run, name: str) -> Quantity | None:
    value = run.sums[name].mean
    return None if value is None else Quantity(value, f"mean of metrics.{name}.value")


FORMAT = Format(NAME, "metadata.request_start_ns and metrics", recognises, records)
