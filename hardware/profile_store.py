"""Where profiles live and how they are read and written.

A profile is found by device and engine: first among those this user calibrated (`user_folder`), then
among those shipped with the package (``profiles/`` beside this file). Files are versioned JSON,
validated field by field, and replaced atomically, so that an interrupted write loses nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from roofcast.hardware.errors import (
    FileFormatError,
    InputError,
    SchemaVersionError,
    unknown,
)
from roofcast.hardware.profile import SCHEMA_VERSION, Profile

_SHIPPED = Path(__file__).with_name("profiles")
BY_USE: Final = ("vllm", "sglang", "trtllm", "torch", "llama.cpp")
_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def user_folder() -> Path:
    """Folder of this user's own profiles: $ROOFCAST_PROFILES, else the platform's data folder."""
    override = os.environ.get("ROOFCAST_PROFILES")
    if override:
        return Path(override)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "roofcast" / "profiles"


def path_for(device: str, engine: str) -> Path:
    """Where a calibration of `device` under `engine` is kept for later forecasts."""
    return user_folder() / f"{device}.{engine}.json"


def find_profiles(device: str) -> tuple[Profile, ...]:
    """Every profile of a device id, this user's own before the shipped ones."""
    return tuple(read(path) for path in _paths(device))


def _paths(device: str) -> list[Path]:
    """Files of a device's profiles, this user's own first, then by how common the engine is."""
    own = user_folder().glob(f"{device}.*.json") if user_folder().is_dir() else ()
    return [*sorted(own, key=_rank), *sorted(_SHIPPED.glob(f"{device}.*.json"), key=_rank)]


def _engine(path: Path) -> str:
    """The engine in a file name <device>.<engine>.json; an engine's name may hold a dot."""
    return path.name.removesuffix(".json").split(".", 1)[1]


def _rank(path: Path) -> tuple[int, str]:
    engine = _engine(path)
    return (BY_USE.index(engine) if engine in BY_USE else len(BY_USE), engine)


def engines(device: str) -> tuple[str, ...]:
    """Engines that a device has profiles of, in the order `choose` prefers them."""
    return tuple(dict.fromkeys(_engine(path) for path in _paths(device)))


def shipped() -> Iterator[Path]:
    """Files of the shipped profiles, by name."""
    yield from sorted(_SHIPPED.glob("*.json"))


def choose(device: str, engine: str | None) -> Profile | None:
    """The profile a forecast uses: of `engine` if named, else the first; None where none exists.

    Raises UnknownNameError when the device has profiles, but none for the engine asked for.
    """
    paths = _paths(device)
    if not paths:
        return None
    if engine is None:
        return read(paths[0])
    for path in paths:
        if _engine(path) == engine:
            return read(path)
    raise unknown(f"engine profile of {device}", engine, sorted({_engine(path) for path in paths}))


def read(path: str | Path) -> Profile:
    """A profile from its file.

    Raises FileFormatError for a missing, truncated or malformed file, SchemaVersionError for one
    written by a newer version.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"profile {path}: {error.strerror or error}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"profile {path} is not valid JSON: {error}") from None
    if not isinstance(document, dict) or "schema_version" not in document:
        raise FileFormatError(f"profile {path} has no schema_version: not a Roofcast profile")
    return _validate(_migrate(document, path), path)


def write(profile: Profile, path: str | Path) -> Path:
    """Write a profile, replacing the file in one step; raises InputError where it can't be written."""
    document = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(profile)}
    return write_text(Path(path), _text(document))


def _text(document: dict[str, Any]) -> str:
    """The document with a line for each field, parameter, curve and judgement, empty parts left out."""
    lines = [f" {json.dumps(name)}: {_part(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _part(value: object) -> str:
    if isinstance(value, dict) and any(isinstance(each, dict) for each in value.values()):
        rows = [
            f"  {json.dumps(name)}: {json.dumps(_filled(each))}" for name, each in value.items()
        ]
        return "{\n" + ",\n".join(rows) + "\n }"
    if isinstance(value, (list, tuple)) and any(isinstance(each, dict) for each in value):
        rows = [f"  {json.dumps(_filled(each))}" for each in value]
        return "[\n" + ",\n".join(rows) + "\n ]"
    return json.dumps(value)


def _filled(entry: object) -> object:
    """Without what says nothing: no error, no source, no note, no coverage. A unit may be empty."""
    if not isinstance(entry, dict):
        return entry
    return {
        name: value
        for name, value in entry.items()
        if name == "unit" or value not in (None, "", (), [])
    }


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically: a reader sees the old file or the new one, never a part."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def _umask() -> int:
    """What the user's new files may not allow; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _migrate(document: dict[str, Any], path: Path) -> dict[str, Any]:
    version = document.pop("schema_version")
    if not isinstance(version, int) or version < 1 or version > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"profile {path} has schema version {version}; this Roofcast reads 1 to "
            f"{SCHEMA_VERSION}: recalibrate, or update Roofcast"
        )
    while version < SCHEMA_VERSION:
        document = _MIGRATIONS[version](document)
        version += 1
    return document


@lru_cache(maxsize=1)
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Profile)


def _validate(document: dict[str, Any], path: Path) -> Profile:
    from pydantic import ValidationError

    try:
        profile: Profile = _adapter().validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FileFormatError(f"profile {path}: {where}: {first['msg'].lower()}") from None
    return profile
