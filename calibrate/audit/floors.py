"""The least a pass can take, under what is stated and under anything it leaves open.

A floor moves all weights and cache that a pass needs at the datasheet's bandwidth and does all FLOPs
at the datasheet's peak, whichever takes longer. To call a measurement impossible that isn't enough:
what nobody stated may have been kinder. The least floor therefore takes a cache of one byte an element
where its dtype isn't stated, and tokens that choose their experts as unevenly as anyone has measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from roofcast.hardware.errors import UnknownSpecError
from roofcast.simulator.api import Setup
from roofcast.simulator.formats import element_bytes
from roofcast.simulator.operators import Operator
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.roofline import Roofs
from roofcast.simulator.workload import Array

STEEPEST_SKEW: Final = 1.2
"""Zipf exponent of expert use: the steepest routing (power_law_1.2) of aiconfigurator-core 0.12.0."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds of a pass at full bandwidth and at peak. `kv_s` is the cache's part of the former."""

    memory_s: Array
    compute_s: Array
    kv_s: Array

    @property
    def total_s(self) -> Array:
        """The longer of the two: they can overlap."""
        return np.maximum(self.memory_s, self.compute_s)


def floor(forecast: Forecast) -> Floor:
    """The floor of a forecast's pass, on the rank that has most to do."""
    roofs = Roofs(forecast.device, forecast.profile)
    bandwidth = roofs.bandwidth_bytes_per_s
    parts = forecast.operators
    cached = _sum(each.kv_read_bytes + each.kv_write_bytes for each in parts)
    read = _sum(each.weight_bytes for each in parts)
    worked = _sum(each.flops / _peak(each, roofs) for each in parts if np.any(each.flops))
    return Floor((read + cached) / bandwidth, worked, cached / bandwidth)


def _peak(operator: Operator, roofs: Roofs) -> float:
    """The operator's peak; where its dtype has none, the highest of the device: it can't do better."""
    own = roofs.device.peak_flops_per_s.get(operator.dtype)
    known = [*roofs.device.peak_flops_per_s.values(), *_measured_peaks(roofs)]
    if own is None and not known:
        raise UnknownSpecError(f"{roofs.device.id} has no known peak")
    return own or max(known)


def _measured_peaks(roofs: Roofs) -> Iterable[float]:
    measured = roofs.profile.roofs
    return (value for name, value in measured.items() if name.startswith("peak_flops_per_s"))


def kindest(setup: Setup, cache_stated: bool) -> Setup:
    """The set-up under which a measurement may be as fast as anything unstated allows."""
    routed = any(layer.experts for layer in setup.architecture.layers)
    narrow = not cache_stated and element_bytes(setup.kv_dtype) > 1.0
    if not routed and not narrow:
        return setup
    return replace(
        setup,
        kv_dtype="fp8" if narrow else setup.kv_dtype,
        skew=STEEPEST_SKEW if routed else setup.skew,
    )


def _sum(arrays: Iterable[Array]) -> Array:
    return sum(arrays, np.zeros(()))
