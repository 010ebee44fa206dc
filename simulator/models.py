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

from roofcast.hardware.errors import bad_file, unknown
from roofcast.simulator import checkpoints, hub
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.config import read_json
from roofcast.simulator.families import registry
from roofcast.simulator.quantization import apply, quantization, requantise

CONFIG_FILE: Final = "config.json"
QUANT_FILE: Final = "hf_quant_config.json"


def load(model: str | Path) -> Architecture:
    """The architecture of a bundled name, a config.json, a folder, a GGUF file, or a Hub id.

    A folder holds config.json, and may hold hf_quant_config.json and the weights, whose headers then
    say how the tensors are stored; or a GGUF file alone. Beside X.json, X_hf_quant_config.json
    counts. Raises an InputError of one line for anything that is none of these, or that no family
    reads.
    """
    path = Path(model)
    name = bundled_names().get(_folded(str(model)))
    if path.name == CONFIG_FILE:
        return _from_folder(path.parent)
    if path.is_dir() and (name is None or (path / CONFIG_FILE).is_file()):
        return _from_folder(path)
    if path.suffix == ".gguf" and path.is_file():
        return _from_gguf(path, path.stem)
    if path.is_file() or path.suffix in (".json", ".gguf"):
        return _from_file(path, path.with_name(f"{path.stem}_{QUANT_FILE}"), name=path.stem)
    if name is not None:
        return _bundled(name)
    if hub.is_id(str(model)):
        config, side = hub.fetch(str(model), CONFIG_FILE, QUANT_FILE)
        return _from_file(config, side, name=str(model))
    raise unknown(
        "model", str(model), bundled(), "or give a config.json, a folder holding one, or a Hub id"
    )


def from_fields(
    fields: Mapping[str, object], *, name: str, side_file: Mapping[str, object] | None = None
) -> Architecture:
    """The architecture that the contents of a config.json describe, stored as they say.

    `side_file` holds the contents of hf_quant_config.json.
    """
    architecture = replace(registry.parse(fields, name)[0], name=name)
    if architecture.dtype != "bf16":
        architecture = requantise(architecture, architecture.dtype)
    return apply(architecture, quantization(fields, side_file, source=name))


def source(model: str | Path) -> str:
    """Where a model's config comes from: what a bundled one says of itself, a path, or the Hub.

    >>> source("falcon-7b")
    'config.json of tiiuae/falcon-7b as quoted in public test files'
    """
    path, name = Path(model), bundled_names().get(_folded(str(model)))
    if path.exists() or path.suffix in (".json", ".gguf"):
        return str(path)
    if name is not None:
        return str(_read(f"{name}.json").get("_source", name))
    return f"{model} on the Hugging Face Hub"


@cache
def bundled() -> tuple[str, ...]:
    """The names of the bundled models."""
    return tuple(name for name in _index() if not name.startswith("_"))


@cache
def bundled_names() -> Mapping[str, str]:
    """The bundled model behind every folded name: its own, its Hub ids, and those without owner."""
    found: dict[str, str] = {}
    for name in bundled():
        ids = [str(hub_id) for hub_id in _index()[name]]
        for spelling in (name, *ids, *(hub_id.rpartition("/")[2] for hub_id in ids)):
            found.setdefault(_folded(spelling), name)
    return found


def _bundled(name: str) -> Architecture:
    return from_fields(_read(f"{name}.json"), name=name)


@cache
def _index() -> dict[str, list[object]]:
    return {key: value for key, value in _read("index.json").items() if isinstance(value, list)}


def _read(file: str) -> dict[str, object]:
    entry: Traversable = resources.files("roofcast.simulator").joinpath("bundled", file)
    with resources.as_file(entry) as path:
        return read_json(path)


def _folded(name: str) -> str:
    """Case and punctuation do not matter.

    >>> _folded("meta-llama/Llama-3.1-8B")
    'metallama/llama318b'
    """
    return re.sub(r"[^a-z0-9/]", "", name.casefold())


def _from_folder(folder: Path) -> Architecture:
    """A folder's model: its config, with the bytes its tensors have where the weights are there."""
    name, config = folder.resolve().name, folder / CONFIG_FILE
    checkpoint = checkpoints.read(folder) if folder.is_dir() else None
    if not config.is_file() and checkpoint is not None and checkpoint.model is not None:
        return checkpoints.architecture_of(checkpoint, name)
    described = _from_file(config, folder / QUANT_FILE, name=name)
    return described if checkpoint is None else checkpoints.stored(described, checkpoint)


def _from_gguf(path: Path, name: str) -> Architecture:
    checkpoint = checkpoints.read(path)
    if checkpoint is None:
        raise bad_file(path, "holds no model")
    return checkpoints.architecture_of(checkpoint, name)


def _from_file(path: Path, side: Path | None, *, name: str) -> Architecture:
    if not path.is_file():
        raise bad_file(path, "no such file; expected a Hugging Face config.json")
    side_file = read_json(side) if side is not None and side.is_file() else None
    return from_fields(read_json(path), name=name, side_file=side_file)
