"""What a calibration tells its caller while it runs; printing is the caller's business."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One step done: `done` of `total` in a stage, and what comes next in words."""

    stage: str
    done: int
    total: int
    what: str
    elapsed_s: float


Listener = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """A listener that doesn't."""
