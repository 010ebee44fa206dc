"""Roofs: how long an operator takes on a device, given what its profile achieves.

    t = launches x fixed + matrices x matrix + c(rows) x join(memory, compute, loop, blocks)

    memory  = bytes / (e_b B)                  B the memory bandwidth, e_b the achieved fraction, which
                                               may grow with the matrix, as (bytes / 16 MiB)^g
    compute = FLOPs / (e_c P)                  P the dense peak of the operator's dtype
    loop    = repeats x l (depth / 4096)^a (1 + rows / 128)^r
    blocks  = blocks x s / U                   U the compute units (SMs, CUs, Xe cores)
    join    = the largest, or (sum of x^p)^(1/p) where the profile has an exponent p

`loop` is the time one block of threads needs to walk its inner dimension, however many blocks run
beside it: it bounds small products and short caches that no roof explains. `blocks` is the time the
device needs to start and retire independent pieces of work. c is a measured curve and s a scale
measured in whole steps, 1 where there is none. A profile without a parameter pays nothing for it.
Collectives are in wire.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import UnknownSpecError
from roofcast.hardware.profile import Curve, Profile
from roofcast.simulator.operators import Operator
from roofcast.simulator.wire import wire_time
from roofcast.simulator.workload import Array

LOOP_DEPTH, LOOP_ROWS = 4096.0, 128.0
"""Where `loop_s` is quoted, and the rows from which a block's tile grows."""

STREAM_BYTES, STREAM_ENDS = float(1 << 24), (float(1 << 19), float(1 << 28))
"""The matrix for which `bandwidth_efficiency` is quoted if it grows, and where that begins and ends."""

_WIDER: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
    "fp6": ("fp6", "fp8", "bf16", "fp16", "fp32"),
    "fp8": ("fp8", "bf16", "fp16", "fp32"),
    "int8": ("int8", "bf16", "fp16", "fp32"),
    "bf16": ("bf16", "fp16", "fp32"),
    "fp16": ("fp16", "bf16", "fp32"),
    "fp32": ("fp32",),
}
_MATRIX_UNITS = ("fp4", "fp6", "fp8", "int8", "bf16", "fp16", "tf32")
"""Dtypes of matrix units: a device that has one of them multiplies none of the others in plain fp32."""
_TENSOR_CORES = 7.0
"""NVIDIA's GPUs have them from this compute capability on (CUDA C++ programming guide)."""


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

    def gap(self, dtype: str) -> str:
        """What the spec lacks where a product in `dtype` counts at fp32 though matrix units run it.

        Empty where nothing is missing.
        """
        if dtype == "fp32" or self.peak(dtype)[0] != "fp32":
            return ""
        if not _has_matrix_units(self.device):
            return ""
        named = " or ".join(name for name in _WIDER.get(dtype, (dtype,)) if name != "fp32")
        return (
            f"{self.device.id} states no peak for {named}: arithmetic in {dtype} counts at fp32, "
            f"{self.peak('fp32')[1] / 1e12:.3g} TFLOP/s, so forecasts bound by compute are too slow; "
            f"a spec with peak_tflops.{named.partition(' ')[0]} mends that"
        )


def _has_matrix_units(device: Accelerator) -> bool:
    if any(device.peak_flops_per_s.get(name) for name in _MATRIX_UNITS):
        return True
    capability = (device.isa or "").replace(".", "", 1)
    known = device.vendor == "NVIDIA" and capability.isdigit()
    return known and float(device.isa or 0.0) >= _TENSOR_CORES


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Seconds of one operator: memory and compute roofs as achieved, and the fixed part.

    `serial_s` is the larger of loop and blocks: what more bandwidth or FLOP/s wouldn't shorten.
    """

    memory_s: Array
    compute_s: Array
    link_s: Array
    fixed_s: Array
    total_s: Array
    serial_s: Array = field(default_factory=lambda: np.zeros(()))


def operator_time(operator: Operator, roofs: Roofs) -> OperatorTime:
    """How long an operator takes, and each bound on it."""
    profile, kind = roofs.profile, operator.kind
    zero = np.zeros(())
    if kind == "collective":
        link, latency = wire_time(operator, roofs.device, profile)
        return OperatorTime(zero, zero, link, latency, link + latency)
    fixed = _fixed_time(operator, profile)
    memory, compute = _memory_time(operator, roofs), _compute_time(operator, roofs)
    loop, blocks = _loop_time(operator, profile), _blocks_time(operator, roofs)
    roof = _join(_value(operator, profile, "exponent", 0.0), memory, compute, loop, blocks)
    curve = profile.curves.get(f"{kind}.rows.{operator.format}") or profile.curves.get(
        f"{kind}.rows"
    )
    if curve is not None:
        roof = roof * along(curve, operator.rows)
    roof = roof * profile.value(f"{kind}.scale", 1.0)
    serial = blocks if loop is None else loop if blocks is None else np.maximum(loop, blocks)
    return OperatorTime(
        memory,
        zero if compute is None else compute,
        zero,
        fixed,
        roof + fixed,
        zero if serial is None else serial,
    )


def _value(operator: Operator, profile: Profile, name: str, default: float) -> float:
    """A parameter of the operator: of its name and format, its name, its format, or its kind."""
    name_, format_ = operator.name, operator.format
    variants = (f"{name_}.{format_}", name_, format_)
    return profile.value(f"{operator.kind}.{name}", default, *variants)


def _fixed_time(operator: Operator, profile: Profile) -> Array:
    """launches x fixed, and matrices x matrix where experts run one after another.

    In a captured step kernels follow each other closer than they do alone: where the profile has a
    `launch_s` for the kind, measured in whole steps, it counts in place of the kernels' own.
    """
    launch = profile.parameters.get(f"{operator.kind}.launch_s")
    each = _value(operator, profile, "fixed_s", 0.0) if launch is None else launch.value
    fixed = operator.launches * each * profile.value(f"{operator.kind}.fixed_scale", 1.0)
    each = _value(operator, profile, "matrix_s", 0.0)
    return np.asarray(fixed + operator.matrices * each if each else fixed)


def _memory_time(operator: Operator, roofs: Roofs) -> Array:
    """bytes / (e_b B); activations count `activation_factor` times where a kernel repeats them."""
    moved = operator.bytes
    factor = _value(operator, roofs.profile, "activation_factor", 1.0)
    if factor != 1.0:
        moved = moved + (factor - 1.0) * operator.activation_bytes
    reach = _value(operator, roofs.profile, "bandwidth_efficiency", 1.0)
    time = np.asarray(moved / (reach * roofs.bandwidth_bytes_per_s))
    growth = _value(operator, roofs.profile, "bandwidth_growth", 0.0)
    if not growth:
        return time
    stream = operator.weight_bytes / np.maximum(operator.matrices, operator.launches)
    return np.asarray(time * (np.clip(stream, *STREAM_ENDS) / STREAM_BYTES) ** -growth)


def _compute_time(operator: Operator, roofs: Roofs) -> Array | None:
    """FLOPs / (e_c P); None for an operator without matrix products."""
    if not np.any(operator.flops):
        return None
    dtype, peak = roofs.peak(operator.dtype)
    name, format_ = operator.name, operator.format
    variants = (f"{name}.{format_}", name, format_, dtype)
    reach = roofs.profile.value(f"{operator.kind}.compute_efficiency", 1.0, *variants)
    return operator.flops / (reach * peak)


def _loop_time(operator: Operator, profile: Profile) -> Array | None:
    """repeats x l (depth / 4096)^a (1 + rows / 128)^r; None where the profile knows no loop."""
    seconds = _value(operator, profile, "loop_s", 0.0)
    if not seconds:
        return None
    slope = _value(operator, profile, "loop_exponent", 1.0)
    time = (operator.repeats * seconds) * (operator.depth / LOOP_DEPTH) ** slope
    growth = _value(operator, profile, "loop_rows_exponent", 0.0)
    return time * (1.0 + operator.rows / LOOP_ROWS) ** growth if growth else np.asarray(time)


def _blocks_time(operator: Operator, roofs: Roofs) -> Array | None:
    """blocks x s / U; None where the profile has no s or the spec no U."""
    seconds = _value(operator, roofs.profile, "block_s", 0.0)
    units = roofs.device.compute_units
    return operator.blocks * (seconds / units) if seconds and units else None


def along(curve: Curve, positions: Array) -> Array:
    """A curve at `positions`, linear in the logarithm of its axis, constant beyond its ends.

    >>> along(Curve("rows", (1.0, 4.0), (1.0, 3.0)), np.array([0.5, 2.0, 8.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    logs = np.log(np.maximum(positions, 1e-12))
    values: Array = np.interp(logs, np.log(np.asarray(curve.points)), np.asarray(curve.values))
    return values


def _join(exponent: float, *parts: Array | None) -> Array:
    """(sum of x^p)^(1/p), or the largest where p is 0; 1 and 2 are spelled out: they are fast."""
    present = [part for part in parts if part is not None]
    if len(present) == 1:
        return present[0]
    if not exponent:
        return reduce(np.maximum, present)
    if exponent == 1.0:
        return sum(present[1:], present[0])
    if exponent == 2.0:
        return np.sqrt(sum((part * part for part in present[1:]), present[0] * present[0]))
    powers = [part**exponent for part in present]
    return np.asarray(sum(powers[1:], powers[0]) ** (1.0 / exponent))
