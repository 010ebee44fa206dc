"""Memory lines of an engine's start-up log, pasted as they are, in place of assumed ones.

vLLM prints GiB (and, in older versions, GiB under the name GB). Its lines, v0 and v1:

    model weights take 14.99GiB; non_torch_memory takes 0.12GiB; PyTorch activation peak memory takes
    1.19GiB; the rest of the memory reserved for KV Cache is 54.93GiB.
    Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27
    GiB). Actual usage is 14.08 GiB for weight, 1.97 GiB for peak activation, 0.07 GiB for non-torch
    memory, and 0.67 GiB for CUDAGraph memory.
    Available KV cache memory: 5.85 GiB      GPU KV cache size: 242,534 tokens
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from roofcast.hardware.errors import InputError
from roofcast.simulator.memory import WEIGHTS
from roofcast.simulator.memory_policy import Launch

_GIB = 2.0**30
_NUMBER = r"([\d.]+)"
_SIZES = {
    "weights": (
        rf"model weights take {_NUMBER} ?GiB",
        rf"Actual usage (?:is|:)? ?{_NUMBER} GiB for weights?\b",
        rf"Model loading took {_NUMBER} Gi?B",
        rf"Loading model weights took {_NUMBER} Gi?B",
    ),
    "consumed": (rf"{_NUMBER} GiB for consumed memory",),
    "activations": (
        rf"PyTorch activation peak memory takes {_NUMBER} ?GiB",
        rf"{_NUMBER} GiB for peak activation",
    ),
    "context": (
        rf"non_torch_memory takes {_NUMBER} ?GiB",
        rf"{_NUMBER} GiB for non-torch memory",
    ),
    "graphs": (
        rf"{_NUMBER} GiB for CUDAGraph memory",
        rf"Graph capturing finished in \d+ secs?, took {_NUMBER} GiB",
    ),
    "cache room": (
        rf"Available KV cache memory: {_NUMBER} GiB",
        rf"reserved for KV Cache is {_NUMBER} ?GiB",
    ),
    "capacity": (
        rf"total_gpu_memory \({_NUMBER} ?GiB\)",
        rf"Free memory on device \([\d.]+/{_NUMBER} GiB\)",
    ),
}
_SHARES = (
    rf"gpu_memory_utilization \({_NUMBER}\)",
    rf"Desired GPU memory utilization is \({_NUMBER},",
)
_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")


@dataclass(frozen=True, slots=True)
class StartupLog:
    """What a log says: bytes by line of the ledger, the engine's share, cache tokens."""

    sizes_bytes: tuple[tuple[str, float], ...]
    utilisation: float | None = None
    cache_tokens: int | None = None

    def applied(self, launch: Launch) -> Launch:
        """The launch with measured lines; its own utilisation, where given, must agree."""
        given = launch.utilisation
        if given is not None and self.utilisation is not None and given != self.utilisation:
            raise InputError(
                f"the log was written at a memory utilisation of {self.utilisation:g}, not {given:g}"
            )
        share = given if given is not None else self.utilisation
        return replace(launch, utilisation=share, measured=self.sizes_bytes)


def read(text: str) -> StartupLog:
    """Parse pasted log lines; the last of each kind counts. InputError where no line is known."""
    found = {name: _last(patterns, text) for name, patterns in _SIZES.items()}
    sizes = {name: value * _GIB for name, value in found.items() if value is not None}
    tokens = _TOKENS.findall(text)
    if not sizes and not tokens:
        raise InputError(
            "no memory line of a vLLM start-up log found; expected lines such as "
            "'Available KV cache memory: 5.85 GiB' or 'model weights take 14.99GiB'"
        )
    return StartupLog(
        tuple(_ledger(sizes).items()),
        _last(_SHARES, text),
        int(tokens[-1].replace(",", "")) if tokens else None,
    )


def _ledger(sizes: dict[str, float]) -> dict[str, float]:
    """Logged sizes as ledger lines: one that covers several leaves nothing for the others."""
    lines = dict(sizes)
    consumed = lines.pop("consumed", None)
    weights = lines.pop("weights", None)
    if consumed is not None and weights is not None:
        lines.setdefault("context", max(consumed - weights, 0.0))
    weights = consumed if weights is None else weights
    if weights is not None:
        lines[WEIGHTS[0]], lines[WEIGHTS[1]] = weights, 0.0
    if "activations" in lines:
        lines["logits"] = 0.0  # sampling is part of the peak
    if "context" in lines:
        lines["communication"] = 0.0  # so are buffers of what torch does not hold
    return lines


def _last(patterns: tuple[str, ...], text: str) -> float | None:
    for pattern in patterns:
        matches = re.findall(pattern, text, re.IGNORECASE)
        if matches:
            return float(matches[-1])
    return None
