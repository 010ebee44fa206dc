"""What a report is made of: plain values that know nothing of HTML, Markdown or matplotlib.

Every text in here may come from a user's file (a model's name, a profile's notes), so renderers
escape all of it; no block carries markup. The one exception is `Figure.svg`, which only
`roofcast.reports.document.svg` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofcast.reports.tables import Table


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """Sentences that stand side by side."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Captioned:
    """A table under its caption. Tables of `heads` have a name of their row in the first column."""

    caption: str
    table: Table
    heads: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing: what it shows in one line, and in words for who cannot see it.

    `svg` draws it when it is needed, because Markdown never does.
    """

    caption: str
    description: str
    svg: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Explorer:
    """The interactive view: grids over batch and context for each device, as JSON-ready values."""

    data: Mapping[str, Any]
    batch_index: int
    context_index: int


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are long and seldom read, behind a summary."""

    summary: str
    blocks: tuple[Block, ...]


Block = Text | Bullets | Captioned | Figure | Explorer | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part. `key` is its anchor, from the code, never from data."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report. `rows` are its points for programs, with the columns of `roofcast predict`."""

    title: str
    subtitle: str
    made: str
    sections: tuple[Section, ...]
    rows: Sequence[Mapping[str, Any]]
