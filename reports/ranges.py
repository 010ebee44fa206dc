"""Lists and ranges of whole numbers as they are typed: 1,8,64 or 1:256:x2 or 1k:8k:+1k."""

from __future__ import annotations

import re

from roofcast.hardware.errors import InputError

_NUMBER = re.compile(r"(\d{1,15})(k?)", re.ASCII)
_MOST = 100_000


def numbers(text: str, name: str) -> list[int]:
    """Every number of a list whose parts are numbers or ranges; `k` stands for 1024.

    `start:stop:xN` multiplies by N, `start:stop:+N` adds N, `start:stop` doubles. InputError names
    the part that cannot be read.

    >>> numbers("1,8,64", "batch"), numbers("1:64:x4", "batch"), numbers("1k:4k:+1k", "context")
    ([1, 8, 64], [1, 4, 16, 64], [1024, 2048, 3072, 4096])
    """
    found: list[int] = []
    for part in text.split(","):
        found += _part(part.strip(), name)
    return list(dict.fromkeys(found))


def _part(part: str, name: str) -> list[int]:
    pieces = part.split(":")
    if len(pieces) == 1:
        return [_number(part, name, part)]
    if len(pieces) > 3:
        raise _unreadable(part, name)
    start, stop = _number(pieces[0], name, part), _number(pieces[1], name, part)
    step = pieces[2] if len(pieces) == 3 else "x2"
    by = _number(step[1:], name, part)
    multiplies = step[0] == "x"
    if step[0] not in "x+" or start > stop or by < (2 if multiplies else 1):
        raise _unreadable(part, name)
    if multiplies and start == 0:
        raise InputError(f"{name} {part!r}: a range that multiplies cannot start at 0")
    steps = [start]
    while (following := steps[-1] * by if multiplies else steps[-1] + by) <= stop:
        steps.append(following)
        if len(steps) > _MOST:
            raise InputError(f"{name} {part!r} has more than {_MOST} values")
    return steps


def _number(text: str, name: str, part: str) -> int:
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None:
        raise _unreadable(part, name)
    return int(match[1]) * (1024 if match[2] else 1)


def _unreadable(part: str, name: str) -> InputError:
    return InputError(
        f"{name} {part!r} is not a whole number, nor a list or range of them; "
        "write 8 or 1,8,64 or 1:256:x2 or 1k:8k:+1k"
    )
