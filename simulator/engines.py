"""What an engine runs in a step, as kernel counts: data from engines' sources, not from timings."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

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
    exchange: str
    prompts_first: bool
    token_budget: float
    reads_again: float = 0.0
    quantise_nvfp4: float | None = None
    successor: str | None = None


@cache
def _table() -> dict[str, Engine]:
    text = resources.files("roofcast.simulator").joinpath("engines.toml").read_text("utf-8")
    written = tomllib.loads(text)
    return {name: Engine(name, **_whole(written, fields)) for name, fields in written.items()}


def _whole(written: dict[str, dict[str, Any]], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an entry, those of the entry it is `like` filled in."""
    own = {key: value for key, value in fields.items() if key != "like"}
    if "like" not in fields:
        return own
    return {**_whole(written, written[fields["like"]]), **own}


def names() -> tuple[str, ...]:
    """Engines with counts of their own."""
    return tuple(_table())


def successor(name: str) -> str | None:
    """The engine of today's versions, if `name` stands for older ones."""
    entry = _table().get(name)
    return None if entry is None else entry.successor


def find_engine(name: str) -> Engine:
    """The kernel counts of an engine; UnknownNameError names the engines there are."""
    table = _table()
    if name not in table:
        raise unknown("engine", name, table)
    return table[name]
