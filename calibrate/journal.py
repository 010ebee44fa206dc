"""An append-only journal of raw samples: what is measured stays measured, whatever happens next.

A JSON object a line. The first line is the header (schema version, device, plan, conditions); every
other line is one measurement, flushed to the disk before the next one starts. A process killed while
writing leaves half a line at the end, which a reader drops; anything else that is broken is an error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from roofcast.calibrate.samples import Fact, Measurement
from roofcast.calibrate.shapes import Scale
from roofcast.hardware.errors import InputError, SchemaVersionError, bad_file

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What a journal is about. A resumed calibration must have the same device, engine and plan.

    `scale` says which model shapes were run ("small" or "large"), `dtype` how they were stored.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    device: str
    engine: str
    plan: str
    started: str
    scale: str = "small"
    dtype: str = "bf16"
    conditions: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contents:
    """A journal read back; `measured` has one entry a task, the last one written."""

    header: Header
    measured: tuple[Measurement, ...]
    truncated: bool = False

    @property
    def scale(self) -> Scale:
        """Which model shapes were run."""
        return "large" if self.header.scale == "large" else "small"


@dataclass
class Journal:
    """Measurements of one calibration, on disk as they come; `create` or `resume` makes one."""

    path: Path
    header: Header
    _known: dict[str, Measurement] = field(default_factory=dict)

    @classmethod
    def create(cls, path: Path, header: Header) -> Journal:
        """A new journal, its header written; InputError where the folder can't be written."""
        journal = cls(path, header)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8"):
                pass
        except OSError as error:
            raise _unwritable(path, error) from None
        journal._append({"schema_version": SCHEMA_VERSION, **asdict(header)})
        return journal

    @classmethod
    def resume(cls, path: Path, header: Header) -> Journal:
        """Go on with an interrupted journal, or start one where there is none.

        InputError where the journal is of another device, engine or plan.
        """
        if not path.exists() or path.stat().st_size == 0:
            return cls.create(path, header)
        contents = read(path)
        for name in ("device", "engine", "plan"):
            old, new = getattr(contents.header, name), getattr(header, name)
            if old != new:
                raise InputError(
                    f"cannot resume {path}: it was measured with {name} {old}, not {new}; "
                    "start afresh, or name another --out"
                )
        if contents.truncated:
            _drop_last_line(path)
        known = {entry.task.key: entry for entry in contents.measured}
        return cls(path, contents.header, known)

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Measurement:
        return self._known[key]

    def get(self, key: str) -> Measurement | None:
        """What is known of a task; None before it was measured."""
        return self._known.get(key)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def add(self, measurement: Measurement) -> None:
        """Keep a measurement: on disk when this returns. InputError when the disk is full."""
        self._append(_plain(measurement))
        self._known[measurement.task.key] = measurement

    def _append(self, document: Mapping[str, object]) -> None:
        line = json.dumps(document, separators=(",", ":")) + "\n"
        try:
            size = self.path.stat().st_size
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, size)  # half a line would be in the way of the next one
                raise
        except OSError as error:
            raise _unwritable(self.path, error) from None


def read(path: Path) -> Contents:
    """A journal from its file.

    FileFormatError for a file that is missing or broken anywhere but in its last line,
    SchemaVersionError for one of a newer version.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise bad_file(path, error.strerror or str(error)) from None
    whole, _, rest = text.rpartition("\n")
    lines = whole.split("\n") if whole else []
    if not lines:
        raise bad_file(path, "no header: not a calibration journal")
    header = _header(path, lines[0])
    measured = {}
    for number, line in enumerate(lines[1:], start=2):
        entry = _measurement(path, number, line)
        measured[entry.task.key] = entry
    return Contents(header, tuple(measured.values()), truncated=bool(rest))


def _header(path: Path, line: str) -> Header:
    document = _object(path, 1, line)
    version = document.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"journal {path} has schema version {version}; this Roofcast reads {SCHEMA_VERSION}"
        )
    header: Header = _valid(path, 1, Header, document)
    return header


def _measurement(path: Path, number: int, line: str) -> Measurement:
    document = _object(path, number, line)
    for name in ("others", "stolen"):
        if document.get(name, ...) is None:
            document.pop(name)
    entry: Measurement = _valid(path, number, Measurement, document)
    return entry


def _plain(measurement: Measurement) -> dict[str, Fact | list[float] | None]:
    document = asdict(measurement)
    document["samples_s"] = [float(f"{sample:.6g}") for sample in measurement.samples_s]
    for name in ("at_s", "others", "stolen"):
        value = document[name]
        document[name] = round(value, 4) if math.isfinite(value) else None  # NaN is not JSON
    return document


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise bad_file(path, f"not valid JSON ({error})", where=f"line {number}") from None
    if not isinstance(document, dict):
        raise bad_file(path, "expected a JSON object", where=f"line {number}")
    return document


@lru_cache
def _adapter(type_: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(type_)


def _valid(path: Path, number: int, type_: type, document: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(type_).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise bad_file(path, f"{where}: {first['msg'].lower()}", where=f"line {number}") from None


def _drop_last_line(path: Path) -> None:
    text = path.read_bytes()
    try:
        os.truncate(path, text.rfind(b"\n") + 1)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write {path}: {error.strerror or error}; what was measured before is kept, "
        "make room or name another --out and resume"
    )
