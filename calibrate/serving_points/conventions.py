"""What public points leave unsaid, read from conventions.toml and recipes.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from roofcast.calibrate.serving_points.points import Point
from roofcast.hardware.errors import unknown
from roofcast.simulator.planning.speculation import Speculation


@dataclass(frozen=True, slots=True)
class EngineName:
    """The engine whose counts and overheads stand for the one named.

    `kernels` is the engine whose kernel tables describe its products, None where no table does;
    `nearest` says that only a relative stands in.
    """

    engine: str
    kernels: str | None = None
    nearest: bool = False


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long requests are: uniform from `low` to 1 times nominal, `waves` for each one in flight."""

    low: float = 1.0
    waves: int = 10
    source: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an engine was launched, where a benchmark's scripts say so; None where they don't."""

    path: str = ""
    kv_dtype: str | None = None
    state_dtype: str | None = None
    experts: str | None = None
    token_budget: float | None = None
    poll_steps: float = 1.0
    wait_steps: float = 0.0
    fuse_all_reduce: bool = False
    expert_parallel: bool = False
    speculation: Speculation | None = None


def engine_of(point: Point) -> EngineName:
    """The engine profile for a point; UnknownNameError for an engine without a stand-in."""
    name = point.engine.strip().lower()
    entries = _data("conventions")["engine"]
    for entry in entries:
        fits = re.search(entry.get("source", ""), point.source)
        if name in entry["names"] and fits and re.search(entry.get("gpu", ""), point.gpu):
            return EngineName(entry["engine"], entry.get("kernels"), entry.get("nearest", False))
    raise unknown("engine", point.engine, [known for e in entries for known in e["names"]])


def kernels_of(engine: str) -> str | None:
    """The engine whose kernel tables describe another's products."""
    for entry in _data("conventions")["engine"]:
        if entry["engine"] == engine and not entry.get("nearest", False):
            found: str | None = entry.get("kernels")
            return found
    return None


def counts_of(point: Point, engine: str, fused: bool) -> str:
    """The entry of engines.toml that counts a point's kernels: by version, norms `fused` or not."""
    fitting = (
        entry["kernels"]
        for entry in _data("conventions")["version"]
        if entry["engine"] == engine and re.search(entry["versions"], point.engine_version)
    )
    name = next(fitting, engine)
    return f"{name}-fused" if fused else name


def device_name(point: Point) -> str:
    """The catalogue's name for the device of a point."""
    return str(_data("conventions")["devices"].get(point.gpu, point.gpu))


def lengths_of(point: Point) -> Lengths:
    """Length distribution of a point's requests, all equal unless its source says otherwise."""
    for entry in _data("conventions")["lengths"]:
        fields = {k: v for k, v in entry.items() if k in ("notes", "source_ref")}
        if _fits(fields, point):
            return Lengths(entry["low"], entry["waves"], entry["source"])
    return Lengths()


def recipe_of(point: Point) -> Recipe:
    """How the engine of a point was launched."""
    random_lengths = lengths_of(point).low < 1.0
    for entry in _data("recipes")["recipe"]:
        if entry.get("inferencex", False) and not random_lengths:
            continue
        exact = all(getattr(point, k) in entry[k] for k in _EXACT if k in entry)
        if exact and _dated(entry, point.measured_on) and _fits(_patterns(entry), point):
            return _recipe(entry, point)
    return Recipe()


_PATTERNS = {"engine": "engine", "model": "model", "gpu": "gpu", "weights": "weight_dtype"}
_EXACT = ("isl", "osl", "tp", "ep")


def _patterns(entry: Mapping[str, Any]) -> dict[str, str]:
    return {_PATTERNS[key]: value for key, value in entry.items() if key in _PATTERNS}


def _fits(patterns: Mapping[str, str], point: Point) -> bool:
    return all(re.search(pattern, getattr(point, name)) for name, pattern in patterns.items())


def _dated(entry: Mapping[str, Any], day: str) -> bool:
    """Undated points count as the latest script's."""
    return not day or entry.get("since", "") <= day[:10] <= entry.get("until", "9999")


def _recipe(entry: Mapping[str, Any], point: Point) -> Recipe:
    budget = entry.get("token_budget")
    if "token_budget_prompts" in entry and point.isl:
        budget = entry["token_budget_prompts"] * point.isl
    steps = 1.0
    for threshold, value in entry.get("poll_steps", ()):
        if (point.concurrency or 0) >= threshold:
            steps = float(value)
    return Recipe(
        path=entry["path"],
        kv_dtype=entry.get("kv_dtype"),
        state_dtype=entry.get("state_dtype"),
        experts=entry.get("experts"),
        token_budget=budget,
        poll_steps=steps,
        wait_steps=entry.get("wait_steps", 0.0),
        fuse_all_reduce=entry.get("fuse_all_reduce", False),
        expert_parallel=entry.get("expert_parallel", False),
        speculation=Speculation(**entry["speculation"]) if "speculation" in entry else None,
    )


@cache
def _data(name: str) -> Mapping[str, Any]:
    folder = resources.files("roofcast.calibrate.serving_points")
    return tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
