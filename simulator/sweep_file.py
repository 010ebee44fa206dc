"""A sweep written down in TOML: one scenario, and lists that replace parts of it.

    run = "simulate"

    [scenario]
    model = "llama-3.1-8b"
    requests = 500

    [sweep]
    device = ["h100-sxm-80gb", "l40s"]
    rate = [1.0, 2.0, 4.0]

Every combination is a point: six here. A dotted key replaces a value inside a table.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from roofcast.hardware.errors import bad_file, suggestion
from roofcast.hardware.validation import read_toml

_KEYS: Final = ("run", "scenario", "sweep")
_MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class Point:
    """One combination: what is varied, and the whole document that results."""

    number: int
    varied: Mapping[str, Any]
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The points of a file, in the order of its lists; `run` is the command they are for."""

    run: str
    points: tuple[Point, ...]


def read_sweep(path: Path) -> Sweep:
    """The sweep of a file. Raises FileFormatError that names the key."""
    document = read_toml(path)
    for key in document:
        if key not in _KEYS:
            raise bad_file(path, f"unknown key{suggestion(key, list(_KEYS))}", where=key)
    run, scenario = document.get("run", "simulate"), document.get("scenario")
    lists = document.get("sweep", {})
    if not isinstance(run, str):
        raise bad_file(path, f"expected a name, got {run!r}", where="run")
    if not isinstance(scenario, dict):
        raise bad_file(path, "expected a table", where="scenario")
    if not isinstance(lists, dict):
        raise bad_file(path, "expected a table", where="sweep")
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise bad_file(path, f"expected a list of values, got {values!r}", where=f"sweep.{key}")
    count = math.prod(len(values) for values in lists.values())
    if count > _MOST:
        raise bad_file(path, f"{count:,} points are more than {_MOST:,}", where="sweep")
    for table in (scenario, lists):
        _beside(table, path.parent)
    for key in lists:
        _check_key(scenario, key, path)
    points = [
        Point(number, dict(zip(lists, values, strict=True)), _with(scenario, lists, values))
        for number, values in enumerate(itertools.product(*lists.values()))
    ]
    return Sweep(run, tuple(points))


def _check_key(scenario: Mapping[str, Any], key: str, path: Path) -> None:
    """A dotted key must lead through tables."""
    table: Any = scenario
    for name in key.split(".")[:-1]:
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise bad_file(path, f"{name} is no table in the scenario", where=f"sweep.{key}")


def _beside(table: dict[str, Any], folder: Path) -> None:
    """Traces are found beside the file, wherever the command is called."""
    for key, value in table.items():
        if isinstance(value, dict):
            _beside(value, folder)
        elif key.rpartition(".")[2] == "trace":
            listed = value if isinstance(value, list) else [value]
            found = [str(folder / each) if isinstance(each, str) else each for each in listed]
            table[key] = found if isinstance(value, list) else found[0]


def _with(
    scenario: Mapping[str, Any], keys: Mapping[str, Any], values: tuple[Any, ...]
) -> dict[str, Any]:
    """The scenario with values at dotted keys."""
    document = copy.deepcopy(dict(scenario))
    for key, value in zip(keys, values, strict=True):
        table = document
        *above, last = key.split(".")
        for name in above:
            table = table.setdefault(name, {})
        table[last] = value
    return document
