"""The model shapes of the decode runs, from shapes.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal

from roofcast.hardware.errors import unknown
from roofcast.simulator.architecture import Architecture, Experts, Layer, Weight
from roofcast.simulator.formats import find_format
from roofcast.simulator.models import from_fields

Scale = Literal["small", "large"]


@dataclass(frozen=True)
class Shape:
    """One entry of shapes.toml."""

    name: str
    scale: str
    plans: tuple[str, ...]
    config: Mapping[str, object]
    held_out: bool = False

    def architecture(self, dtype: str) -> Architecture:
        """The model with its weights stored in `dtype`."""
        return _stored_in(from_fields(self.config, name=self.name), dtype)


@cache
def shapes(scale: Scale) -> Mapping[str, Shape]:
    """Every shape of a scale, by name, in the order of the file."""
    text = resources.files("roofcast.calibrate").joinpath("shapes.toml").read_text("utf-8")
    entries = tomllib.loads(text)["shape"]
    found = [Shape(**{**entry, "plans": tuple(entry["plans"])}) for entry in entries]
    return {shape.name: shape for shape in found if shape.scale == scale}


def find_shape(name: str, scale: Scale) -> Shape:
    """The shape of that name; UnknownNameError where there is none."""
    known = shapes(scale)
    if name not in known:
        raise unknown("model shape", name, known)
    return known[name]


def _stored_in(architecture: Architecture, dtype: str) -> Architecture:
    form = find_format(dtype)

    def weights(old: tuple[Weight, ...]) -> tuple[Weight, ...]:
        return tuple(replace(weight, format=form) for weight in old)

    def experts(old: Experts | None) -> Experts | None:
        return None if old is None else replace(old, weights=weights(old.weights))

    def layer(old: Layer) -> Layer:
        return replace(old, weights=weights(old.weights), experts=experts(old.experts))

    return replace(
        architecture,
        layers=tuple(layer(old) for old in architecture.layers),
        embeddings=weights(architecture.embeddings),
        head=weights(architecture.head),
        dtype=dtype,
    )
