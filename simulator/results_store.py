"""Results of a sweep in a SQLite file: what was done stays done, whatever interrupts the rest."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from roofcast.hardware.errors import SchemaVersionError, bad_file

SCHEMA_VERSION: Final = 1
_CREATE: Final = """
create table if not exists meta (name text primary key, value text not null);
create table if not exists results (
    key text primary key,
    number integer not null,
    point text not null,
    refused text,
    result text not null
);
"""


@dataclass(frozen=True, slots=True)
class Result:
    """One point of a sweep: what was asked, and what came of it or why it was refused."""

    number: int
    point: Mapping[str, Any]
    result: Mapping[str, Any]
    refused: str | None = None


def key_of(document: Mapping[str, Any]) -> str:
    """The same for equal documents under the same release of Roofcast, whatever their order."""
    text = json.dumps([version("roofcast"), document], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class ResultsStore:
    """A file of results, used as a context. Each result is on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; FileFormatError where it is something else."""
        self.path = path
        try:
            self._file = sqlite3.connect(path)
        except sqlite3.Error as error:
            raise bad_file(path, f"cannot be opened ({error})") from None
        try:
            self._file.executescript(_CREATE)
            self._check()
        except (sqlite3.Error, SchemaVersionError) as error:
            self._file.close()
            if isinstance(error, SchemaVersionError):
                raise
            raise bad_file(path, f"is no store of results ({error})") from None

    def _check(self) -> None:
        row = self._file.execute("select value from meta where name = 'schema'").fetchone()
        if row is None:
            with self._file:
                self._file.execute("insert into meta values ('schema', ?)", (str(SCHEMA_VERSION),))
        elif row[0] != str(SCHEMA_VERSION):
            raise SchemaVersionError(
                f"{self.path} has schema {row[0]}, not {SCHEMA_VERSION}: write to another file"
            )

    def __enter__(self) -> ResultsStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def done(self) -> set[str]:
        """Keys of the points that have a result."""
        return {row[0] for row in self._file.execute("select key from results")}

    def add(self, key: str, result: Result) -> None:
        """Write a result, in place of an older one of the same point."""
        with self._file:
            self._file.execute(
                "insert or replace into results values (?, ?, ?, ?, ?)",
                (
                    key,
                    result.number,
                    json.dumps(result.point),
                    result.refused,
                    json.dumps(result.result),
                ),
            )

    def results(self, keys: set[str]) -> Iterator[Result]:
        """Results of the given points, in the order of the sweep."""
        rows = self._file.execute("select * from results order by number, key")
        for key, number, point, refused, result in rows:
            if key in keys:
                yield Result(number, json.loads(point), json.loads(result), refused)
