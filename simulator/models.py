"""From what a user calls a model to its `Architecture`: bundled names, files, folders, Hub ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from roofcast.hardware.errors import InputError, bad_file, unknown
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.config import read_json
from roofcast.simulator.families import registry

QUANT_FILE: Final = "hf_quant_config.json"


def load(model: str | Path) -> Architecture:
    """The architecture of a bundled name, a config.json, a folder holding one, or a Hub id."""
    path = Path(model)
    if path.is_dir():
        return _from_file(path / "config.json", path / QUANT_FILE, name=path.resolve().name)
    if path.is_file() or path.suffix == ".json":
        return _from_file(path, path.with_name(f"{path.stem}_{QUANT_FILE}"), name=path.stem)
    bundled_ = bundled().get(_folded(str(model)))
    if bundled_ is not None:
        name, entry = bundled_
        return from_fields(read_json(Path(str(entry))), name=name)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", str(model)):
        return _from_hub(str(model))
    names = sorted(name for name, _ in bundled().values())
    raise unknown("model", str(model), names, "or give a config.json, a folder or a Hub id")


def from_fields(
    fields: Mapping[str, object], *, name: str, side_file: Mapping[str, object] | None = None
) -> Architecture:
    """The architecture that the contents of a config.json describe."""
    architecture, _ = registry.parse(fields, name)
    # Seam: formats_for(fields, side_file) maps module paths to weight formats here.
    return replace(architecture, name=name)


@cache
def bundled() -> Mapping[str, tuple[str, Traversable]]:
    """Bundled models by every folded name they answer to."""
    found: dict[str, tuple[str, Traversable]] = {}
    for entry in resources.files("roofcast.simulator").joinpath("models").iterdir():
        if entry.name.endswith(".json"):
            name = entry.name.removesuffix(".json")
            found[_folded(name)] = (name, entry)
    return found


def _folded(name: str) -> str:
    """Case and punctuation do not matter, nor does the owner in a Hub id.

    >>> _folded("meta-llama/Llama-3.1-8B")
    'llama318b'
    """
    return re.sub(r"[^a-z0-9]", "", name.rsplit("/", 1)[-1].casefold())


def _from_file(path: Path, side: Path, *, name: str) -> Architecture:
    if not path.is_file():
        raise bad_file(path, "no such file; expected a Hugging Face config.json")
    side_file = read_json(side) if side.is_file() else None
    return from_fields(read_json(path), name=name, side_file=side_file)


def _from_hub(model: str) -> Architecture:
    raise InputError(f"{model}: not bundled")
