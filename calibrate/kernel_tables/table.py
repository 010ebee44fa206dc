"""A kernel table in memory: columns of one length, by name."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.errors import FileFormatError

Column = NDArray[Any]


@dataclass(frozen=True)
class Table:
    """Rows of measured kernels. Numbers are float64, names are strings; `latency_s` is always there."""

    columns: Mapping[str, Column]

    def __len__(self) -> int:
        """Rows."""
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        """One column; FileFormatError where the table lacks it."""
        if name not in self.columns:
            have = ", ".join(sorted(self.columns)) or "none"
            raise FileFormatError(f"a kernel table has no column {name}; its columns are {have}")
        return self.columns[name]

    def where(self, chosen: Column) -> Table:
        """The rows that a mask or a list of positions selects."""
        return Table({name: column[chosen] for name, column in self.columns.items()})

    def matching(self, **wanted: str | float) -> Table:
        """The rows whose columns equal the given values; a column the table lacks matches nothing."""
        chosen = np.ones(len(self), dtype=bool)
        for name, value in wanted.items():
            chosen &= self.columns[name] == value if name in self.columns else False
        return self.where(chosen)

    def distinct(self, name: str) -> tuple[Any, ...]:
        """Values of a column, sorted."""
        return tuple(np.unique(self[name]).tolist())

    def groups(self, names: Sequence[str]) -> NDArray[np.intp]:
        """A number for each row, the same for rows that agree in all of `names`."""
        numbers = np.zeros(len(self), dtype=np.intp)
        for name in names:
            codes = np.unique(self[name], return_inverse=True)[1]
            numbers = numbers * (int(codes.max(initial=0)) + 1) + codes
            numbers = np.unique(numbers, return_inverse=True)[1]
        return numbers

    def thinned(self, most: int, seed: int = 0) -> Table:
        """At most `most` rows, drawn at random but always the same ones."""
        if len(self) <= most:
            return self
        chosen = np.random.default_rng(seed).choice(len(self), most, replace=False)
        return self.where(np.sort(chosen))


def read_csv(path: Path, names: Iterable[str]) -> Table:
    """A CSV or CSV.gz with a `latency_us` column; `names` are the columns that hold text.

    FileFormatError where a column has a cell that isn't a number, or latencies are missing.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"kernel table {path}: {error}") from None
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise FileFormatError(
                f"kernel table {path}, line {line}: {len(row)} cells under {len(header)} columns"
            )
    cells: list[tuple[str, ...]] = list(zip(*rows, strict=True))
    if not cells:
        cells = [()] * len(header)
    return table_of(dict(zip(header, cells, strict=True)), path, set(names))


def table_of(cells: Mapping[str, Sequence[Any]], path: Path, names: set[str]) -> Table:
    """Cells of a file as typed columns, microseconds turned into seconds."""
    columns: dict[str, Column] = {}
    for name, values in cells.items():
        if name in names:
            columns[name] = np.asarray(values, dtype=str)
            continue
        try:
            columns[name] = np.asarray([value or "nan" for value in values], dtype=np.float64)
        except ValueError as error:
            raise FileFormatError(f"kernel table {path}, column {name}: {error}") from None
    if "latency_us" not in columns:
        raise FileFormatError(
            f"kernel table {path} has no column latency_us; it has {', '.join(cells)}"
        )
    columns["latency_s"] = columns.pop("latency_us") * 1e-6
    return Table(columns)
