"""Records as serving points, so that a run of one's own calibrates like a public one.

roofcast calibrate serving run.json --model llama-3.1-70b --device h100-sxm --engine vllm --tp 4
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from roofcast.calibrate.benchmark_files.conditions import Conditions, sidecar
from roofcast.calibrate.benchmark_files.reader import read_all
from roofcast.calibrate.benchmark_files.record import Record
from roofcast.calibrate.serving_points.points import LoadMode, Measured, Point
from roofcast.hardware.errors import InputError

_REQUIRED = {"model": "--model", "device": "--device", "engine": "--engine"}


def read_as_points(paths: Iterable[str | Path], given: Conditions) -> tuple[Point, ...]:
    """The points of benchmark files and of tables of points, under what a user says of the former.

    InputError where a file doesn't hold the model, device or engine and nobody said them.
    """
    return tuple(point_of(record, given) for record in read_all(paths))


def point_of(record: Record, given: Conditions) -> Point:
    """A record as a point: flags before a sidecar, that before the file; a table's row as it is."""
    if record.point is not None:
        return record.point
    said = given.over(sidecar(Path(record.file)))
    known = said.over(record.stated)
    missing = [option for name, option in _REQUIRED.items() if getattr(said, name) is None]
    if known.engine is not None and "--engine" in missing:
        missing.remove("--engine")
    if missing:
        raise InputError(
            f"{record.name}: give {' and '.join(missing)}, or a .conditions.toml beside the file"
        )
    sizes: dict[str, Any] = {
        name: _float(getattr(known, name)) for name in ("tp", "pp", "ep", "dp")
    }
    return Point(
        id=record.name,
        source=record.format,
        source_ref=record.name,
        gpu=said.device or "",
        model=said.model or "",
        engine=known.engine or "",
        load_mode=_load_mode(record),
        serving_mode="disaggregated" if "disaggregated" in record.flags else "aggregated",
        weight_dtype=known.weight_dtype or "",
        kv_dtype=known.kv_dtype or "",
        isl=_either(record.value("input_tokens"), said.input_tokens),
        osl=_either(record.value("output_tokens"), said.output_tokens),
        concurrency=_either(record.value("batch"), said.batch),
        tpot_stat=record.tpot_s.source if record.tpot_s is not None else "",
        measured=_measured(record),
        **sizes,
    )


def _load_mode(record: Record) -> LoadMode:
    if record.batch_kind == "single" or (record.static and record.value("batch") == 1):
        return "single_stream"
    return "static_batch" if record.static else "closed_loop"


def _measured(record: Record) -> Measured:
    """The measured numbers in the units of a point; a served run's latency is no static batch's."""
    tpot, ttft = record.value("tpot_s"), record.value("ttft_s")
    return Measured(
        tpot_ms=None if tpot is None else 1e3 * tpot,
        ttft_ms=None if ttft is None else 1e3 * ttft,
        e2e_s=record.value("e2e_s") if record.static else None,
        output_tok_s=record.value("output_tokens_per_s"),
    )


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _either(first: float | None, second: float | None) -> float | None:
    return first if first is not None else second
