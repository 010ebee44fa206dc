"""What others measured: published achieved bandwidth and FLOP/s, to hold a calibration against.

The records stand in `published.csv`, one measurement a line, SI values, with the
engine, the conditions, the source and, where the number deserves one, a caution.
They are evidence, not profiles: nothing here enters a forecast by itself.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Quantity = Literal[
    "gemm_flops_per_s",
    "weight_read_bytes_per_s",
    "kv_read_bytes_per_s",
    "memory_bytes_per_s",
    "all_reduce_bus_bytes_per_s",
]
Statistic = Literal["max", "median", "median_large", "mamf"]


@dataclass(frozen=True, slots=True)
class Achieved:
    """One published measurement.

    quantity: `gemm_flops_per_s`; `weight_read_bytes_per_s` (GEMM with m = 1, weights far
    above the caches); `kv_read_bytes_per_s` (decode attention); `memory_bytes_per_s` (a
    copy or read test); `all_reduce_bus_bytes_per_s` (2 (n-1)/n bytes over time, n `devices`;
    a switch that reduces can take it above the link's rate).

    statistic: `max` and `median` over shapes; `median_large` over large GEMMs; `mamf` the
    maximum achievable matmul FLOP/s of ml-engineering's finder (best shape, mean of runs).
    """

    device: str
    quantity: Quantity
    statistic: Statistic
    value: float
    source: str
    dtype: str | None = None
    devices: int = 1
    engine: str | None = None
    conditions: str | None = None
    caution: str | None = None


def published(device_id: str) -> tuple[Achieved, ...]:
    """The published record of a device, by catalogue id; empty where there is none.

    >>> [a.value for a in published("l4") if a.dtype == "fp8"]
    [188000000000000.0]
    """
    return tuple(record for record in _records() if record.device == device_id)


@cache
def _records() -> tuple[Achieved, ...]:
    return tuple(_read(Path(__file__).with_name("published.csv")))


def _read(path: Path) -> Iterator[Achieved]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            given: dict[str, Any] = {key: text for key, text in row.items() if text}
            given |= {"value": float(row["value"]), "devices": int(row["devices"])}
            yield Achieved(**given)
