"""All that is known of one point when its suspects are looked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from roofcast.calibrate.audit.costs import Cost
from roofcast.calibrate.audit.impossible import ROUNDING, Impossible
from roofcast.calibrate.audit.measured import Step, interference_s
from roofcast.calibrate.audit.placing import Placed
from roofcast.calibrate.audit.ranges import credible

_SCALED = 1.15


@dataclass(frozen=True, slots=True)
class Evidence:
    """A placed point with its cost, its measured step and what of it can't be true."""

    placed: Placed
    cost: Cost
    step: Step | None
    found: tuple[Impossible, ...] = ()

    @property
    def interference_s(self) -> float:
        """Seconds a token waits for the prompts of other requests."""
        return interference_s(self.placed, self.cost)

    @property
    def expected_s(self) -> float:
        """The step as forecast, prompts of other requests included."""
        return self.cost.step_s + self.interference_s

    @property
    def measured_s(self) -> float:
        """The measured step; NaN where there is none."""
        return math.nan if self.step is None else self.step.step_s

    @property
    def ratio(self) -> float:
        """Measured over expected."""
        return self.measured_s / self.expected_s

    @property
    def window(self) -> tuple[float, float]:
        """Ratios that need no explanation: the profile's interval, or what engines reach of a floor."""
        if self.placed.setup.profile.engine == "ideal":
            return credible("ideal_reach").least, credible("ideal_reach").most
        low, high = self.cost.low_s / self.cost.step_s, self.cost.high_s / self.cost.step_s
        return (low, high) if math.isfinite(low) else (0.67, 1.5)

    @property
    def slow(self) -> bool:
        """Slower than the forecast's interval allows."""
        return self.ratio > self.window[1]

    @property
    def fast(self) -> bool:
        """Faster than the forecast's interval allows."""
        return self.ratio < self.window[0]

    @property
    def below_floor(self) -> bool:
        """Below the floor as set up."""
        return self.measured_s < ROUNDING * self.cost.floor_s

    def explains(self, expected_s: float) -> bool:
        """Whether a measurement is as it should be if about this much was to be expected.

        What a hypothesis expects is scaled from parts, which adds to the forecast's own interval.
        """
        low, high = self.window
        return low / _SCALED <= self.measured_s / expected_s <= high * _SCALED


@dataclass(frozen=True, slots=True)
class Suspect:
    """A likely cause: how much of the gap it explains (0 to 1), and a sentence with the evidence."""

    cause: str
    share: float
    words: str


def parts_total(parts: Mapping[str, float], *names: str) -> float:
    """Seconds of several parts together."""
    return sum(parts[name] for name in names)
