"""Tables as aligned text.

A pipe gets every column at full width. A terminal that is too narrow loses the least important columns,
never a digit, and is told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `rank` 0 is never dropped; the highest rank goes first where space is short."""

    header: str
    cells: Sequence[str]
    right: bool = True
    rank: int = 0

    @property
    def width(self) -> int:
        """Characters of the widest cell."""
        return max(len(text) for text in (self.header, *self.cells))


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length."""

    columns: tuple[Column, ...]

    def plain(self) -> str:
        """Aligned text, every column, no trailing spaces, no line of empty headers.

        >>> print(Table((Column("batch", ["1", "64"]), Column("of", ["H100", "CPU"], False))).plain())
        batch  of
            1  H100
           64  CPU
        """
        heads = 1 if self.headed else 0
        rows = zip(*([c.header][:heads] + list(c.cells) for c in self.columns), strict=True)
        return "\n".join(
            (" " * _GAP)
            .join(_aligned(c, text) for c, text in zip(self.columns, row, strict=True))
            .rstrip()
            for row in rows
        )

    @property
    def headed(self) -> bool:
        """Whether any column has a header."""
        return any(column.header for column in self.columns)

    @property
    def width(self) -> int:
        """Characters of a line."""
        return _total(self.columns)

    def fitted(self, width: int) -> tuple[Table, list[str]]:
        """The table within `width` characters, and the headers of the columns it had to drop."""
        kept, dropped = list(self.columns), []
        while _total(kept) > width and any(column.rank for column in kept):
            last = max(kept, key=lambda column: column.rank)
            kept.remove(last)
            dropped.append(last.header)
        return Table(tuple(kept)), dropped


def _aligned(column: Column, text: str) -> str:
    return text.rjust(column.width) if column.right else text.ljust(column.width)


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)
