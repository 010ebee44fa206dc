"""Times as they are typed: 50ms, 1.5s, 200us, or a plain number of seconds."""

from __future__ import annotations

import re

from roofcast.hardware.errors import InputError

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}
_TIME = re.compile(r"([\d.]+)\s*([a-zµ]*)", re.ASCII | re.IGNORECASE)


def seconds(text: str, name: str) -> float:
    """Seconds of a time; InputError names what cannot be read.

    >>> seconds("50ms", "tpot"), seconds("1.5", "ttft"), seconds("2 s", "ttft")
    (0.05, 1.5, 2.0)
    """
    match = _TIME.fullmatch(text.strip())
    try:
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError
        return float(match[1]) * _UNITS[match[2].lower()]
    except ValueError:
        raise InputError(f"{name} {text!r} is not a time; write 50ms, 1.5s or 0.05") from None
