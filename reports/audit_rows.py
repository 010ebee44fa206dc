"""Audits as plain data: the keys of the contract, and what figures show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from roofcast.calibrate.audit.audit import Audited
from roofcast.calibrate.audit.before_after import Gain

COLUMNS: Final = (
    "file",
    "batch",
    "input_tokens",
    "output_tokens",
    "tpot_s",
    "ttft_s",
    "output_tokens_per_s",
    "floor_step_time_s",
    "forecast_step_time_s",
    "mbu",
    "mfu",
    "flags",
    "suspects",
)
"""What every record has, in this order; further keys follow."""


@dataclass(frozen=True, slots=True)
class AuditBar:
    """One audited point for figures: seconds by part, which sum to the measured step."""

    name: str
    seconds: Mapping[str, float]
    floor_s: float
    forecast_s: float

    @property
    def measured_s(self) -> float:
        """The measured step."""
        return sum(self.seconds.values())


def row(audited: Audited) -> dict[str, Any]:
    """One record of `--json`: plain values, None where unknown."""
    record, cost, step = audited.record, audited.cost, audited.step
    counted = cost is not None and cost.counted
    contract = {
        "file": record.file,
        "batch": record.value("batch"),
        "input_tokens": record.value("input_tokens"),
        "output_tokens": record.value("output_tokens"),
        "tpot_s": record.value("tpot_s"),
        "ttft_s": record.value("ttft_s"),
        "output_tokens_per_s": record.value("output_tokens_per_s"),
        "floor_step_time_s": cost.floor_s if cost is not None and counted else None,
        "forecast_step_time_s": cost.step_s if cost is not None and counted else None,
        "mbu": audited.mbu,
        "mfu": audited.mfu,
        "flags": list(audited.flags),
        "suspects": [suspect.words for suspect in audited.suspects],
    }
    further = {
        "where": record.where,
        "format": record.format,
        "batch_kind": record.batch_kind,
        "decoding_batch": cost.batch if cost is not None and counted else None,
        "step_time_s": step.step_s if step is not None else None,
        "step_source": step.source if step is not None else None,
        "forecast_low_s": _finite(cost.low_s) if cost is not None and counted else None,
        "forecast_high_s": _finite(cost.high_s) if cost is not None and counted else None,
        "waterfall_s": dict(audited.waterfall) if audited.waterfall is not None else None,
        "sources": record.sources(),
        "reason": audited.reason or None,
    }
    return {**contract, **further, **_setup(audited)}


def _setup(audited: Audited) -> dict[str, Any]:
    """What the point was held against."""
    placed = audited.placed
    if placed is None:
        return {}
    where = placed.setup
    return {
        "model": where.architecture.name,
        "device": where.device.id,
        "devices": where.parallelism.devices,
        "engine": where.profile.engine,
        "profile": where.profile.name,
        "kv_dtype": where.kv_dtype,
        "assumed": list(placed.assumed),
        "contradictions": list(placed.contradicted),
    }


def gain_row(gain: Gain) -> dict[str, Any]:
    """One point before and after, as `--json` prints it."""
    before, after = gain.before.record, gain.after.record
    return {
        "before": before.name,
        "after": after.name,
        "batch": before.value("batch"),
        "input_tokens": before.value("input_tokens"),
        "output_tokens": before.value("output_tokens"),
        "before_tpot_s": gain.before_s,
        "after_tpot_s": gain.after_s,
        "gain": gain.gain,
        "gain_low": gain.gain_low,
        "gain_high": gain.gain_high,
        "available_gain": _finite(gain.available),
        "possible_gain": _finite(gain.possible),
        "share_reached": gain.share,
        "verdict": gain.verdict,
        "evidence": gain.words,
    }


def bars(points: Sequence[Audited]) -> tuple[AuditBar, ...]:
    """The points whose time could be split, in order."""
    found = []
    for point in points:
        seconds = point.waterfall
        if seconds is not None and point.cost is not None:
            found.append(AuditBar(label(point), seconds, point.cost.floor_s, point.cost.step_s))
    return tuple(found)


def label(point: Audited) -> str:
    """A point in few words: batch and context."""
    assert point.cost is not None, "only points with a cost are labelled"
    return f"batch {point.cost.batch:,.0f}, context {point.cost.context:,.0f}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
