"""Roofs: how long an operator takes on a device, given what its profile achieves.

    t = launches x fixed + c(rows) x max(bytes / (e_b B), FLOPs / (e_c P))

with B the memory bandwidth, P the dense peak of the operator's dtype, e_b and e_c the achieved
fractions and c a measured curve, 1 where there is none. An exponent p in the profile replaces the
maximum by (a^p + b^p)^(1/p). A collective takes latency + bytes / (e_l L) with L the link bandwidth
of one direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import UnknownSpecError
from roofcast.hardware.profile import Curve, Profile
from roofcast.simulator.operators import Operator
from roofcast.simulator.workload import Array

_WIDER: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
    "fp6": ("fp6", "fp8", "bf16", "fp16", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "bf16", "fp16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "fp32": ("fp32",),
}


@dataclass(frozen=True, slots=True)
class Roofs:
    """The roofs of one device, its datasheet completed by what its profile measured."""

    device: Accelerator
    profile: Profile

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Memory bandwidth: the datasheet's, or the profile's where the datasheet has none."""
        if self.device.memory_bandwidth_bytes_per_s is None:
            measured = self.profile.roofs.get("memory_bandwidth_bytes_per_s")
            if measured is not None:
                return measured
        return float(self.device.require("memory_bandwidth_bytes_per_s"))

    def peak(self, dtype: str) -> tuple[str, float]:
        """The dtype a product runs in, and its dense peak in FLOP/s.

        A device without the dtype computes in the next wider one it has, as engines do (fp8 weights
        on an A100 are widened to bf16). UnknownSpecError where no peak is known at all.
        """
        for candidate in _WIDER.get(dtype, (dtype,)):
            known = self.device.peak_flops_per_s.get(candidate)
            known = known or self.profile.roofs.get(f"peak_flops_per_s.{candidate}")
            if known:
                return candidate, known
        raise UnknownSpecError(
            f"{self.device.id} has no known peak for {dtype} or a wider dtype; "
            "give a spec with one, or calibrate the device"
        )

    def link_bytes_per_s(self, peers: int) -> float:
        """Bytes/s one device sends to its `peers` - 1 others: the scale-up link, else PCIe.

        UnknownSpecError where neither is known, or where the ranks outgrow the scale-up domain.
        """
        device = self.device
        if device.scale_up_bytes_per_s is None:
            return device.pcie_bytes_per_s
        largest = device.scale_up_max_devices
        if largest is not None and peers > largest:
            raise UnknownSpecError(
                f"{peers} ranks outgrow the {largest} devices that {device.scale_up_link} of "
                f"{device.id} connects, and the network between nodes has no spec"
            )
        return device.scale_up_bytes_per_s


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Seconds of one operator: memory and compute roofs as achieved, and the fixed part."""

    memory_s: Array
    compute_s: Array
    link_s: Array
    fixed_s: Array
    total_s: Array


def operator_time(operator: Operator, roofs: Roofs) -> OperatorTime:
    """How long an operator takes, and each bound on it."""
    profile, kind = roofs.profile, operator.kind
    variants = (operator.name, operator.format)
    fixed = operator.launches * profile.value(f"{kind}.fixed_s", 0.0, *variants)
    zero = np.zeros(())
    if kind == "collective":
        efficiency = profile.value("collective.bandwidth_efficiency", 1.0)
        link = operator.link_bytes / (efficiency * roofs.link_bytes_per_s(operator.peers))
        fixed = operator.launches * collective_latency(profile, operator.peers)
        return OperatorTime(zero, zero, link, np.asarray(fixed), link + fixed)
    reach = profile.value(f"{kind}.bandwidth_efficiency", 1.0, *variants)
    memory = operator.bytes / (reach * roofs.bandwidth_bytes_per_s)
    compute = zero
    if np.any(operator.flops):
        dtype, peak = roofs.peak(operator.dtype)
        rate = profile.value(f"{kind}.compute_efficiency", 1.0, operator.name, dtype) * peak
        compute = operator.flops / rate
    roof = _join(memory, compute, profile.value(f"{kind}.exponent", 0.0))
    curve = profile.curves.get(f"{kind}.rows.{operator.format}") or profile.curves.get(
        f"{kind}.rows"
    )
    if curve is not None:
        roof = roof * along(curve, operator.rows)
    return OperatorTime(memory, compute, zero, np.asarray(fixed), roof + fixed)


def collective_latency(profile: Profile, peers: int) -> float:
    """Seconds one collective takes besides its bytes; grows with the ranks where that was measured."""
    return profile.value("collective.latency_s", 0.0, str(peers))


def along(curve: Curve, positions: Array) -> Array:
    """A curve at `positions`, linear in the logarithm of its axis, constant beyond its ends.

    >>> along(Curve("rows", (1.0, 4.0), (1.0, 3.0)), np.array([0.5, 2.0, 8.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    logs = np.log(np.maximum(positions, 1e-12))
    values: Array = np.interp(logs, np.log(np.asarray(curve.points)), np.asarray(curve.values))
    return values


def _join(memory: Array, compute: Array, exponent: float) -> Array:
    if not exponent:
        return np.maximum(memory, compute)
    return np.asarray((memory**exponent + compute**exponent) ** (1.0 / exponent))
