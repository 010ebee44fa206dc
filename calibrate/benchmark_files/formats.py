"""What a reader is: how it knows its format by content, and how it makes records of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from roofcast.calibrate.benchmark_files.documents import objects
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.record import Record


@dataclass(frozen=True, slots=True)
class Opening:
    """How a file begins: its first text, and its first JSON object where it is JSON."""

    text: str
    first: Mapping[str, object] | None

    def has(self, *keys: str) -> bool:
        """Whether the first object has all these keys."""
        return self.first is not None and all(key in self.first for key in keys)

    def holds(self, *path: str) -> bool:
        """Whether the first object has a value at this path."""
        value: object = self.first
        for key in path:
            if not isinstance(value, Mapping) or key not in value:
                return False
            value = value[key]
        return True


@dataclass(frozen=True, slots=True)
class Format:
    """One format: `looked_for` names what tells it from the others, for the error that lists all."""

    name: str
    looked_for: str
    recognises: Callable[[Opening], bool]
    records: Callable[[Path], Iterator[Record]]


def each_object(path: Path) -> Iterator[Fields]:
    """The JSON objects of a file as fields."""
    for document in objects(path):
        assert isinstance(document.value, dict), "objects() yields objects"
        yield Fields(path, document.where, document.value)
