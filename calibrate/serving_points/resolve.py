"""From a point's words to a set-up that can be forecast, or the reason why it can't."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from roofcast.calibrate.serving_points import conventions, weights
from roofcast.calibrate.serving_points.points import Point
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError, unknown
from roofcast.hardware.profile import Profile
from roofcast.simulator.api import Setup
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.models import bundled, bundled_names
from roofcast.simulator.workload import Parallelism

Profiles = Callable[[Accelerator, conventions.EngineName], Profile]
_FOLD = re.compile(r"[^a-z0-9/]")  # as models folds names; no Hub is asked for a table of points


@dataclass(frozen=True, slots=True)
class Case:
    """A point that can be forecast: its set-up, how it was launched and how long its requests are.

    `nearest` says that another engine's profile stands in.
    """

    point: Point
    setup: Setup
    recipe: conventions.Recipe
    lengths: conventions.Lengths
    nearest: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A point that can't be forecast, and why."""

    point: Point
    reason: str


@dataclass
class Resolver:
    """Resolves points against a folder of configs; architectures and set-ups are made once.

    `profiles` gives the profile of a device and engine.
    """

    configs: tuple[Path, ...]
    profiles: Profiles
    _models: dict[tuple[str | None, ...], Architecture] = field(default_factory=dict)
    _setups: dict[tuple[object, ...], Setup] = field(default_factory=dict)

    def all(self, points: Iterable[Point]) -> list[Case | Refusal]:
        """Every point as a case or a refusal, in order."""
        return [self.one(point) for point in points]

    def one(self, point: Point) -> Case | Refusal:
        """A case, or the reason the point has none."""
        missing = _missing(point)
        if missing:
            return Refusal(point, missing)
        try:
            return self._case(point)
        except InputError as error:
            return Refusal(point, str(error))

    def _case(self, point: Point) -> Case:
        named = conventions.engine_of(point)
        recipe = conventions.recipe_of(point)
        device = find(conventions.device_name(point))
        path = self._config(point)
        counts = conventions.counts_of(point, named.engine, recipe.fuse_all_reduce)
        key = (
            path, point.weight_dtype, recipe.state_dtype, recipe.experts, device.id, named.engine,
            point.tp, point.pp, point.ep, point.dp, point.kv_dtype, recipe.kv_dtype,
            counts, recipe.expert_parallel, recipe.speculation,
        )  # fmt: skip
        if key not in self._setups:
            where = Setup(
                self._architecture(path, point.weight_dtype, recipe),
                device,
                self.profiles(device, named),
                _parallelism(point, recipe),
                kernels=counts,
            )
            self._setups[key] = _launched(where, point, recipe)
        return Case(point, self._setups[key], recipe, conventions.lengths_of(point), named.nearest)

    def _architecture(
        self, path: Path | str, word: str, recipe: conventions.Recipe
    ) -> Architecture:
        key = (str(path), word, recipe.state_dtype, recipe.experts)
        if key not in self._models:
            made = weights.stored(path, word)
            if recipe.state_dtype == "bf16":
                made = weights.with_state_dtype(made, 2)
            if recipe.experts:
                made = weights.with_expert_format(made, recipe.experts)
            self._models[key] = made
        return self._models[key]

    def _config(self, point: Point) -> Path | str:
        """The config file of a point: as named, else by the model's name, else a bundled model."""
        folded = point.model.replace("/", "--")
        for name in filter(None, (point.config_file, f"{folded}.json" if folded else "")):
            for folder in self.configs:
                if (folder / name).is_file():
                    return folder / name
        if point.config_file:
            raise InputError(f"config {point.config_file} is not beside the points")
        name = _FOLD.sub("", point.model.casefold())
        if name not in bundled_names():
            raise unknown("model", point.model, bundled(), "put its config.json beside the points")
        return bundled_names()[name]


def _missing(point: Point) -> str:
    if point.serving_mode == "disaggregated":
        return "disaggregated serving: prefill and decode pools are not modelled"
    if point.load_mode == "offline_max":
        return "offline maximum: the batch is not recorded"
    if point.load_mode == "open_loop_qps":
        return "open loop: the number of requests in flight is not recorded"
    for name in ("model", "gpu", "osl", "concurrency"):
        if not getattr(point, name):
            return f"{name} is not recorded"
    return ""


def _launched(where: Setup, point: Point, recipe: conventions.Recipe) -> Setup:
    """A set-up with the cache that a point or its recipe states, else the model's; any context."""
    model = where.architecture
    return replace(
        where,
        architecture=replace(model, max_context=None),
        kv_dtype=point.kv_dtype or recipe.kv_dtype or model.kv_dtype or model.dtype,
        activation_dtype=model.dtype,
    )


def _parallelism(point: Point, recipe: conventions.Recipe) -> Parallelism:
    experts = point.tp if recipe.expert_parallel else point.ep
    sizes = (point.tp, point.pp, experts, point.dp)
    return Parallelism(*(max(1, int(size or 1)) for size in sizes))
