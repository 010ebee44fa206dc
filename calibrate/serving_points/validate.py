"""Forecast measured serving points and say how far off, without looking at a measured value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from roofcast.calibrate.serving_points.bands import factor
from roofcast.calibrate.serving_points.design import Design
from roofcast.calibrate.serving_points.errors import Errors
from roofcast.calibrate.serving_points.forecasts import forecast_cases, missing
from roofcast.calibrate.serving_points.model import Predicted
from roofcast.calibrate.serving_points.physics import roof_share
from roofcast.calibrate.serving_points.points import METRICS, Point, read_points
from roofcast.calibrate.serving_points.profiles import serving_profile
from roofcast.calibrate.serving_points.resolve import Case, Profiles, Refusal, Resolver
from roofcast.simulator.workload import Array

COLUMNS: Final = (
    "id", "metric", "measured", "predicted", "predicted_low", "predicted_high", "reason",
)  # fmt: skip
# Throughput of the decode phase alone, as the words of a source say.
_DECODE_ONLY: Final = re.compile(r"^derived: (1000/|T_TG|source msec)")
_IMPLIED: Final = {
    "closed_loop": ("tpot_ms", "ttft_ms"),
    "static_batch": ("e2e_s",),
    "single_stream": ("e2e_s",),
}


@dataclass(frozen=True, slots=True)
class Record:
    """One metric of one point: the columns of the predictions file, times in the file's units."""

    id: str
    metric: str
    measured: float | None
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    reason: str = ""


@dataclass(frozen=True)
class ValidationResult:
    """Every record, the points behind those that were forecast, and which no physics allows."""

    records: tuple[Record, ...]
    points: tuple[Point, ...]
    too_fast: tuple[str, ...]

    def errors(self, metric: str, keep: Callable[[Point], bool] = lambda point: True) -> Errors:
        """Errors of one metric over the points that `keep` accepts."""
        by_id = {point.id: point for point in self.points}
        rows = [r for r in self.records if r.metric == metric and _judged(r) and keep(by_id[r.id])]
        return Errors.of(
            [(r.measured, r.predicted, r.predicted_low, r.predicted_high) for r in rows]
        )

    @property
    def refused(self) -> dict[str, int]:
        """Reasons why points were not forecast, with how many."""
        counts: dict[str, int] = {}
        for record in self.records:
            if record.predicted is None:
                counts[record.reason] = counts.get(record.reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _judged(record: Record) -> bool:
    return bool(record.measured) and record.predicted is not None


def validate(
    path: str | Path,
    *,
    configs: Iterable[Path] = (),
    profiles: Profiles = serving_profile,
    keep: Callable[[Point], bool] = lambda point: True,
) -> ValidationResult:
    """Forecast every point of a file that `keep` accepts; see DESIGN.md for the columns.

    Architectures come from `configs`, else from ``configs/`` and ``arch_configs/`` beside the file.
    FileFormatError says what is wrong with a file.
    """
    path = Path(path)
    points = tuple(point for point in read_points(path) if keep(point))
    folders = tuple(configs) or (path.parent / "configs", path.parent / "arch_configs")
    return judge(points, Resolver(folders, profiles).all(points))


def judge(points: Sequence[Point], resolved: Sequence[Case | Refusal]) -> ValidationResult:
    """Forecast resolved points and set them beside what was measured."""
    found = [case for case in resolved if isinstance(case, Case)]
    lacking = missing(found)
    refused = [
        *(each for each in resolved if isinstance(each, Refusal)),
        *(Refusal(found[row].point, reason) for row, reason in lacking.items()),
    ]
    cases = [case for row, case in enumerate(found) if row not in lacking]
    predicted, design = forecast_cases(cases)
    impossible = roof_share(cases) > 1.0
    records: dict[str, list[Record]] = {}
    for row, case in enumerate(cases):
        made = _records(case, row, predicted, design)
        records[case.point.id] = [_flagged(each) for each in made] if impossible[row] else made
    for refusal in refused:
        records[refusal.point.id] = _refused(refusal)
    fast = tuple(case.point.id for case, beyond in zip(cases, impossible, strict=True) if beyond)
    ordered = tuple(record for point in points for record in records[point.id])
    return ValidationResult(ordered, tuple(points), fast)


def metrics_of(point: Point) -> tuple[str, ...]:
    """The metrics a point reports; those its load mode implies where it reports none."""
    held = tuple(metric for metric in METRICS if point.measured.value(metric) is not None)
    return held or _IMPLIED.get(point.load_mode, ("tpot_ms",))


def in_file_units(case: Case, metric: str, row: int, predicted: Predicted, design: Design) -> float:
    """A forecast metric in the units and the meaning the file gives it."""
    load = design.load
    if metric == "tpot_ms":
        return float(predicted.tpot_s[row] * 1e3)
    if metric == "ttft_ms":
        return float(predicted.ttft_s[row] * 1e3)
    if metric == "e2e_s":
        return float(predicted.e2e_s[row])
    if _DECODE_ONLY.search(case.point.tpot_stat):
        return float(load.concurrency[row] / predicted.tpot_s[row])
    return float(load.concurrency[row] * load.output[row] / predicted.e2e_s[row])


def _records(case: Case, row: int, predicted: Predicted, design: Design) -> list[Record]:
    reason = "; ".join(_remarks(case, bool(predicted.saturated[row])))
    records = []
    for metric in metrics_of(case.point):
        value = in_file_units(case, metric, row, predicted, design)
        low, high = factor(case.setup.profile, metric, case.nearest)
        measured = case.point.measured.value(metric)
        records.append(
            Record(case.point.id, metric, measured, value, value * low, value * high, reason)
        )
    return records


TOO_FAST: Final = "measured faster than the roofs allow"
"""What is said of a point that no physics allows; the forecast itself knows nothing of it."""


def _flagged(record: Record) -> Record:
    return replace(record, reason="; ".join(filter(None, (record.reason, TOO_FAST))))


def _remarks(case: Case, saturated: bool) -> Iterable[str]:
    profile = case.setup.profile
    if case.nearest:
        yield f"{case.point.engine} was not measured; {profile.engine} stands in"
    yield from (w for w in profile.warnings)
    if saturated:
        yield "memory limits the batch"


def _refused(refusal: Refusal) -> list[Record]:
    point = refusal.point
    return [
        Record(point.id, metric, point.measured.value(metric), None, None, None, refusal.reason)
        for metric in metrics_of(point)
    ]


def arrays(records: Sequence[Record]) -> tuple[Array, Array]:
    """Measured and predicted values of judged records."""
    judged = [record for record in records if _judged(record)]
    return (
        np.array([record.measured for record in judged], dtype=float),
        np.array([record.predicted for record in judged], dtype=float),
    )


def without_measurements(point: Point) -> Point:
    """The point as a forecast sees it: for tests that no measured value is read."""
    return replace(point, measured=type(point.measured)())
