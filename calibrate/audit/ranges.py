"""What audit.toml holds: how much time a cause can credibly take, and what flags of points mean."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Range:
    """From `least` to `most`, as `source` has it."""

    most: float
    source: str
    least: float = 0.0

    def holds(self, value: float) -> bool:
        """Whether a value is credible."""
        return self.least <= value <= self.most


def credible(name: str) -> Range:
    """A range by its name in audit.toml."""
    return _ranges()[name]


def judged_flags(kind: str) -> frozenset[str]:
    """The flags of the points table that are `impossible`, or `doubtful`."""
    return frozenset(_document()["judged"][kind])


@cache
def _ranges() -> dict[str, Range]:
    tables = {name: table for name, table in _document().items() if "most" in table}
    return {name: Range(**table) for name, table in tables.items()}


@cache
def _document() -> Mapping[str, Any]:
    text = resources.files("roofcast.calibrate.audit").joinpath("audit.toml").read_text("utf-8")
    return tomllib.loads(text)
