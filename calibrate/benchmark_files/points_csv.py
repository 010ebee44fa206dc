"""The project's own table of measured points (CSV or CSV.gz): one point a row, conditions included.

`calibrate.serving_points.points` describes the columns. `flag` and `use` are judgements of whoever
made the table: they aren't read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.formats import Format, Opening
from roofcast.calibrate.benchmark_files.record import BatchKind, Quantity, Record
from roofcast.calibrate.serving_points.conventions import lengths_of
from roofcast.calibrate.serving_points.points import Point, read_points

NAME = "Roofcast points"
_KINDS: dict[str, BatchKind] = {
    "single_stream": "single",
    "static_batch": "static",
    "closed_loop": "requested",
}


def recognises(opening: Opening) -> bool:
    """The header of the table."""
    head = opening.text.partition("\n")[0]
    return all(name in head for name in ("id", "gpu", "engine", "load_mode", "tpot_ms"))


def records(path: Path) -> Iterator[Record]:
    """A record for each row."""
    for point in read_points(path):
        yield record(str(path), point)


def record(file: str, point: Point) -> Record:
    """A point as a record; the load mode says what its batch means."""
    measured = point.measured
    kind = _KINDS.get(point.load_mode)
    batch = _quantity(point.concurrency, "concurrency_or_batch") if kind else None
    low = lengths_of(point).low
    drawn = f" x {(1 + low) / 2:g} (drawn from {low:g} to 1 times that)" if low < 1 else ""
    return Record(
        file=file,
        where=f"id {point.id}",
        format=NAME,
        batch=batch,
        batch_kind=kind or "requested",
        requested=batch if kind == "requested" else None,
        input_tokens=_quantity(point.isl, f"isl{drawn}", (1 + low) / 2),
        output_tokens=_quantity(point.osl, f"osl{drawn}", (1 + low) / 2),
        tpot_s=_quantity(measured.tpot_ms, "tpot_ms", 1e-3),
        ttft_s=_quantity(measured.ttft_ms, "ttft_ms", 1e-3),
        e2e_s=_quantity(measured.e2e_s, "e2e_s"),
        output_tokens_per_s=_quantity(measured.output_tok_s, "output_tok_s"),
        stated=_stated(point),
        flags=("disaggregated",) if point.serving_mode == "disaggregated" else (),
        point=point,
    )


def _quantity(value: float | None, source: str, scale: float = 1.0) -> Quantity | None:
    return None if value is None or value <= 0 else Quantity(value * scale, source)


def _stated(point: Point) -> Conditions:
    sizes = (point.tp, point.pp, point.ep, point.dp)
    tp, pp, ep, dp = (int(size) if size else None for size in sizes)
    return Conditions(
        model=point.model or None,
        device=point.gpu or None,
        engine=point.engine or None,
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        weight_dtype=point.weight_dtype or None,
        kv_dtype=point.kv_dtype or None,
    )


FORMAT = Format(NAME, "a CSV header with gpu, engine, load_mode and tpot_ms", recognises, records)
