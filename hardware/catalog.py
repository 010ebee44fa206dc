"""Devices by name: `find("A100 SXM 80GB")`, never by substring.

A name is an id, an alias, the full name or what the driver reports, with or
without the vendor in front; case and punctuation do not matter. A name that
several devices carry ("A100") is an error that lists them.

Names stand at the head of each spec file, before its first table, so a lookup
parses ninety heads and one file. A path ending in `.toml` is read as a spec.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import ambiguous, unknown
from roofcast.hardware.spec_file import read_shipped, read_user

_FOLDER = Path(__file__).with_name("devices")
_HINT = "`roofcast device` lists all of them, and a path to a .toml spec works too"


def find(name: str | Path) -> Accelerator:
    """The device called `name`, or the one described by the TOML file at that path.

    UnknownNameError names the nearest matches; AmbiguousNameError lists the
    devices that share the name; FileFormatError says what is wrong with a file.

    >>> find("nvidia_h200-SXM").id
    'h200-sxm'
    >>> find("A100")
    Traceback (most recent call last):
    roofcast.hardware.errors.AmbiguousNameError: ambiguous device 'A100'; say which one: ...
    """
    given = str(name)
    if given.lower().endswith(".toml"):
        return read_user(Path(given).expanduser())
    found = _ids_by_folded_name().get(fold(given), ())
    if not found:
        raise unknown("device", given, _suggestions(), hint=_HINT)
    if len(found) > 1:
        raise ambiguous("device", given, found)
    return _shipped(found[0])


def names() -> tuple[str, ...]:
    """The ids of the catalogue, sorted."""
    return tuple(_heads())


def all_accelerators() -> tuple[Accelerator, ...]:
    """Every device of the catalogue, sorted by id."""
    return tuple(_shipped(id_) for id_ in _heads())


def with_driver_name(name: str) -> tuple[Accelerator, ...]:
    """The devices whose driver reports exactly this name; several when only memory tells."""
    return tuple(
        _shipped(id_) for id_, head in _heads().items() if name in head.get("driver_names", ())
    )


def fold(name: str) -> str:
    """A name without case and punctuation.

    >>> fold("A100_SXM-80GB") == fold("a100 sxm 80gb")
    True
    """
    return "".join(character for character in name.casefold() if character.isalnum())


@cache
def _shipped(id_: str) -> Accelerator:
    return read_shipped(_FOLDER / f"{id_}.toml")


@cache
def _heads() -> Mapping[str, Mapping[str, Any]]:
    """The keys before the first table of each spec, by id."""
    texts = ((path.stem, path.read_text(encoding="utf-8")) for path in _FOLDER.glob("*.toml"))
    return {id_: tomllib.loads(text.partition("\n[")[0]) for id_, text in sorted(texts)}


@cache
def _ids_by_folded_name() -> Mapping[str, tuple[str, ...]]:
    ids: dict[str, tuple[str, ...]] = {}
    for id_, head in _heads().items():
        for name in {fold(written) for written in _written_names(head)}:
            ids[name] = (*ids.get(name, ()), id_)
    return ids


def _written_names(head: Mapping[str, Any]) -> Iterator[str]:
    """Every spelling of a device's names: as written, with the vendor, without it."""
    vendor = head["vendor"]
    lists = (head.get(key, ()) for key in ("aliases", "families", "driver_names"))
    for name in (head["id"], head["name"], *(name for names in lists for name in names)):
        bare = name.removeprefix(f"{vendor} ")
        yield from (name, bare, f"{vendor} {bare}")


def _suggestions() -> list[str]:
    """What a misspelt name is compared with: ids, aliases and shared names."""
    return [
        name
        for head in _heads().values()
        for name in (head["id"], *head.get("aliases", ()), *head.get("families", ()))
    ]
