"""Every error Roofcast raises on purpose.

    RoofcastError                  something this project decided to refuse
    ├── InputError                 the user can mend it: exit status 2
    │   ├── UnknownNameError       no such device, model, dtype, engine, ...
    │   ├── AmbiguousNameError     the name fits several things
    │   ├── UnknownSpecError       the forecast needs a number the spec lacks
    │   ├── FileFormatError        a file is missing, truncated or malformed
    │   ├── SchemaVersionError     a file written by another version
    │   └── CapacityError          it does not fit in memory
    └── MeasurementError           the machine did not give a usable measurement: exit status 1

A message is one line that says what was given, what is allowed and, where
there is one, the nearest match. `exit_status` is what the command line
returns, so that no caller keeps a second table of errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

_LIST_ALL_UP_TO = 12
_SUGGESTIONS = 3


class RoofcastError(Exception):
    """Base of all errors raised on purpose; `str(error)` is always one line."""

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        """Fold `message` into one line."""
        super().__init__(" ".join(message.split()))


class InputError(RoofcastError):
    """The user gave something that cannot be used."""

    exit_status: ClassVar[int] = 2


class UnknownNameError(InputError):
    """A name that nothing carries; build it with `unknown`."""


class AmbiguousNameError(InputError):
    """A name that several things carry; build it with `ambiguous`."""


class UnknownSpecError(InputError):
    """A forecast needs a number that the device's spec leaves unknown."""


class FileFormatError(InputError):
    """A file is missing, truncated or malformed; build it with `bad_file`."""


class SchemaVersionError(InputError):
    """A file written by another, incompatible version of its schema."""


class CapacityError(InputError):
    """The model, its cache and the reserve do not fit in memory."""


class MeasurementError(RoofcastError):
    """The machine did not give a usable measurement; nothing the user typed is wrong."""


def unknown(kind: str, given: str, allowed: Iterable[str], hint: str = "") -> UnknownNameError:
    """An error for a name that is none of `allowed`: nearest matches, and the choices when few.

    `hint` replaces the list of choices when it is long, e.g. "`roofcast device` lists them".

    >>> print(unknown("dtype", "fp17", ["bf16", "fp16", "fp8"]))
    unknown dtype 'fp17'; did you mean 'fp16'? choices: bf16, fp16, fp8
    """
    choices = list(dict.fromkeys(allowed))
    return UnknownNameError(f"unknown {kind} {given!r}{suggestion(given, choices, hint)}")


def ambiguous(kind: str, given: str, candidates: Iterable[str]) -> AmbiguousNameError:
    """An error for a name that several things carry, listing all of them.

    >>> print(ambiguous("device", "A100", ["a100-sxm-40gb", "a100-sxm-80gb"]))
    ambiguous device 'A100'; say which one: a100-sxm-40gb, a100-sxm-80gb
    """
    return AmbiguousNameError(f"ambiguous {kind} {given!r}; say which one: {', '.join(candidates)}")


def bad_file(path: str | Path, problem: str, *, where: str = "") -> FileFormatError:
    """An error for an unusable file; `where` is the line or field, `problem` what was expected.

    >>> print(bad_file("spec.toml", "expected a number, got 'big'", where="memory.usable_bytes"))
    spec.toml: memory.usable_bytes: expected a number, got 'big'
    """
    return FileFormatError(f"{path}: {where + ': ' if where else ''}{problem}")


def suggestion(given: str, choices: list[str], hint: str = "") -> str:
    """The tail of a message: the nearest matches, then the choices when few, else `hint`."""
    by_folded = {choice.casefold(): choice for choice in choices}
    near = [
        by_folded[name] for name in get_close_matches(given.casefold(), by_folded, _SUGGESTIONS)
    ]
    did_you_mean = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
    listing = f"choices: {', '.join(choices)}" if 0 < len(choices) <= _LIST_ALL_UP_TO else hint
    tail = " ".join(part for part in (did_you_mean, listing) if part)
    return f"; {tail}" if tail else ""
