"""Durations as they are typed: 200ms, 1.5s, 2min."""

from __future__ import annotations

import re
from typing import Final

from roofcast.hardware.errors import InputError

_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_FORM: Final = re.compile(r"(\d+\.?\d*|\.\d+)\s*(us|ms|s|min)")


def duration_s(text: str, name: str) -> float:
    """Seconds of a positive duration that says its unit.

    >>> duration_s("200ms", "--ttft-slo"), duration_s("1.5 s", "--ttft-slo")
    (0.2, 1.5)
    """
    match = _FORM.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise InputError(f"{name} {text!r} is no duration above zero; write 200ms or 1.5s")
    return seconds
