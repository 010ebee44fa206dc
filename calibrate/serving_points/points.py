"""Measured serving points: one CSV schema, read and validated; conditions apart from results.

A point says what ran (`Point`) and what came out (`Measured`). Forecasts read only the former. Columns
derived from measured times (`est_mean_decode_batch`, `weight_bw_bound_ms`) aren't read at all.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from roofcast.hardware.errors import bad_file

LoadMode = Literal["single_stream", "static_batch", "closed_loop", "open_loop_qps", "offline_max"]
METRICS = ("tpot_ms", "ttft_ms", "e2e_s", "output_tok_s")


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, in the units of the file; None where the source does not report it."""

    tpot_ms: float | None = None
    ttft_ms: float | None = None
    e2e_s: float | None = None
    output_tok_s: float | None = None

    def value(self, metric: str) -> float | None:
        """One metric by its column name."""
        found: float | None = getattr(self, metric)
        return found


@dataclass(frozen=True, slots=True)
class Point:
    """What ran: model, device, engine, layout, formats and load of one measured point.

    `gpus` counts all devices, of which `tp` x `pp` x `dp` form a replica. `concurrency` is the batch of
    a static run, the requests in flight of a closed loop. `measured_on` is an ISO date.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    id: str
    gpu: str
    engine: str
    load_mode: LoadMode
    source: str = ""
    model: str = ""
    source_ref: str = ""
    config_file: str = ""
    gpus: float | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dp: float | None = None
    serving_mode: Literal["aggregated", "disaggregated"] = "aggregated"
    engine_version: str = ""
    weight_dtype: str = ""
    kv_dtype: str = ""
    isl: float | None = None
    osl: float | None = None
    concurrency: float | None = None
    tpot_stat: str = ""
    measured_on: str = ""
    use: Literal["ok", "caution", "exclude"] = "ok"
    flag: str = ""
    notes: str = ""
    measured: Measured = Measured()


_RENAMED = {"n_gpu": "gpus", "concurrency_or_batch": "concurrency", "measured": "measured_on"}
_UNREAD = (
    "source_license",
    "model_reported",
    "total_tok_s",
    "power_w",
    "est_mean_decode_batch",
    "weight_bw_bound_ms",
)
_REQUIRED = ("id", "model", "gpu", "engine", "load_mode")


def read_points(path: str | Path) -> tuple[Point, ...]:
    """The points of a CSV or CSV.gz file, in its order.

    FileFormatError names the file, the line and the column of the first thing that makes no sense.
    """
    path = Path(path)
    return tuple(_point(path, line, row) for line, row in _rows(path))


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _REQUIRED if name not in (reader.fieldnames or ())]
            if missing:
                raise bad_file(path, f"no column {missing[0]}: not a file of serving points")
            yield from enumerate(reader, start=2)
    except (OSError, EOFError) as error:
        raise bad_file(path, getattr(error, "strerror", None) or str(error)) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise bad_file(path, str(error)) from None


def _point(path: Path, line: int, row: Mapping[str, str]) -> Point:
    from pydantic import ValidationError

    fields: dict[str, Any] = {}
    results: dict[str, Any] = {}
    for column, text in row.items():
        if column is None or column in _UNREAD or text is None or _blank(text):
            continue
        if column in METRICS:
            results[column] = text
        else:
            name = _RENAMED.get(column, column)
            if name in _FIELDS:
                fields[name] = text
    try:
        point: Point = _adapter().validate_python({**fields, "measured": results})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise bad_file(path, f"line {line}: {where}: {first['msg'].lower()}") from None
    return point


_FIELDS = frozenset(Point.__dataclass_fields__) - {"measured"}


def _blank(text: str) -> bool:
    return text.strip().lower() in ("", "nan", "none")


@lru_cache(maxsize=1)
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Point)
