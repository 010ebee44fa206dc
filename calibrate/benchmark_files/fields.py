"""One JSON object or table row, read field by field: a number, nothing, or an error that says where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roofcast.calibrate.benchmark_files.record import Quantity
from roofcast.calibrate.benchmark_files.text import printable, unusable

Key = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one result. `textual` rows (CSV, markdown) write their numbers as text."""

    path: Path
    where: str
    values: Mapping[str, object]
    textual: bool = False

    def raw(self, key: Key) -> object:
        """The value at a key, or at a path of keys; None where any of them is missing."""
        value: object = self.values
        for part in _path(key):
            if not isinstance(value, Mapping):
                return None
            value = value.get(part)
        return value

    def number(self, *keys: Key, zero: bool = False) -> float | None:
        """The number of the first key that has one; NaN, Infinity and null are none.

        0 is none as well unless `zero`: no time, length or rate of a real run is 0. FileFormatError
        for something that isn't a number, or is negative.
        """
        for key in keys:
            value = self._number(key)
            if value is not None and (value > 0 or zero):
                return value
        return None

    def quantity(self, *keys: Key, scale: float = 1.0, zero: bool = False) -> Quantity | None:
        """The number of the first key that has one, times `scale`, with its path."""
        for key in keys:
            value = self.number(key, zero=zero)
            if value is not None:
                return Quantity(value * scale, dotted(key))
        return None

    def text(self, *keys: Key) -> str | None:
        """The first of the texts there is, safe to show."""
        for key in keys:
            value = self.raw(key)
            if isinstance(value, str) and printable(value):
                return printable(value)
        return None

    def whole(self, *keys: Key) -> int | None:
        """A whole number of at least 1, which metadata may write as text; None if it is not one."""
        for key in keys:
            value = self.raw(key)
            text = str(value).strip() if isinstance(value, (int, str)) else ""
            if text.isascii() and text.isdigit() and int(text[:9]) > 0:
                return int(text[:9])
        return None

    def _number(self, key: Key) -> float | None:
        value = self.raw(key)
        if self.textual and isinstance(value, str):
            value = _read(value)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._refusal(key, f"expected a number, got {printable(repr(value), 60)}")
        if abs(value) > _LARGEST or not math.isfinite(value):
            return None
        if value < 0:
            raise self._refusal(key, f"cannot be negative, got {value:g}")
        return float(value)

    def _refusal(self, key: Key, problem: str) -> Exception:
        return unusable(self.path, problem, f"{self.where} {dotted(key)}".strip())


_LARGEST = 1e24
"""More than any time in ns since 1970; squares and products of what is smaller stay finite."""


def dotted(key: Key) -> str:
    """A path of keys as people write it.

    >>> dotted(("metrics", "request_latency", "mean"))
    'metrics.request_latency.mean'
    """
    return ".".join(printable(part) for part in _path(key))


def _path(key: Key) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def _read(text: str) -> object:
    """A cell as a number where it is one; an empty cell is nothing."""
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text
