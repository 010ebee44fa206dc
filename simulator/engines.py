"""What an engine runs in a step, as kernel counts: data from the engines' sources, not from timings."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from roofcast.hardware.errors import unknown


@dataclass(frozen=True, slots=True)
class Engine:
    """Kernels per layer and place; the fields are explained in engines.toml."""

    name: str
    source: str
    norm: float
    norm_fused: bool
    qk_norm: float
    rope: float
    append: float
    attention: float
    activation: float
    quantise_dynamic: float
    quantise_static: float
    route: float
    combine: float
    state: float


@cache
def _table() -> dict[str, Engine]:
    text = resources.files("roofcast.simulator").joinpath("engines.toml").read_text("utf-8")
    return {name: Engine(name, **counts) for name, counts in tomllib.loads(text).items()}


def names() -> tuple[str, ...]:
    """Engines with counts of their own."""
    return tuple(_table())


def find_engine(name: str) -> Engine:
    """The kernel counts of an engine; UnknownNameError names the engines there are."""
    table = _table()
    if name not in table:
        raise unknown("engine", name, table)
    return table[name]
