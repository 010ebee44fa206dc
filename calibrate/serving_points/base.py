"""What a fit of serving points starts from: a profile's kernels, before anything a step adds.

Kernel tables of one device name several engines for the same product; engines pick the fastest kernel,
tables don't always. Products therefore come from the table that is fastest on that device, and so does
what collectives reach of a link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from roofcast.calibrate.kernel_tables.steps import of_steps
from roofcast.hardware import profile_store
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import Parameter, Profile
from roofcast.hardware.transfer import stacked, transferred
from roofcast.simulator.formats import FORMATS, WeightFormat
from roofcast.simulator.passes import Operator
from roofcast.simulator.roofline import Roofs, operator_time

TABLED: Final = ("vllm", "sglang", "trtllm")
"""Engines with kernel tables."""
_SHARED: Final = {"mxfp4_w4a8": TABLED, "nvfp4": ("trtllm",), "fp8_block": ("trtllm",)}
"""Formats of experts for which these engines run the kernels of `_LENDER`'s table on Blackwell with
stacked memory: TensorRT-LLM's own, which the other two have by way of FlashInfer. What TensorRT-LLM's
tables hold is one rank alone (mxfp4_w4a8), mostly CUTLASS (nvfp4) and DeepGEMM (fp8_block), while its
public runs of 2026 ask for its own (moe_config.backend TRTLLM in InferenceX's scripts)."""
_LENDER: Final = "sglang"
_SHAPES: Final = tuple((n, k) for n in (1280, 4096, 8192, 28672) for k in (1024, 4096, 8192))
_ROWS: Final = (4.0, 32.0, 128.0)


def base_profile(device: Accelerator, engine: str, kernels: str | None) -> Profile:
    """Kernel parameters of a device for `engine`, borrowed from `kernels` (an engine with tables).

    None stands for engines that no table describes: bandwidth and peak are reached to a usual
    fraction, and nothing else is known.
    """
    if kernels is None:
        return _plain(device, engine)
    return replace(_tabled(device.id, kernels), engine=engine)


@cache
def _tabled(device: str, engine: str) -> Profile:
    own = _kernels(device, engine)
    parameters = dict(own.parameters)
    rivals = [_kernels(device, name) for name in TABLED]
    for stored in FORMATS.values():
        measured = [rival for rival in rivals if _measures(rival, stored.name)]
        if measured:
            best = min(measured, key=lambda profile: _log_time(profile, stored))
            for name in [name for name in parameters if _of(name, stored.name)]:
                del parameters[name]
            lent = {n: p for n, p in best.parameters.items() if _of(n, stored.name)}
            parameters.update(_noted(lent, best.engine, engine, _FASTEST))
    for format_name in _shared(find(device), engine):
        found = _kernels(device, _LENDER).parameters
        lent = {n: p for n, p in found.items() if _of(n, format_name, "experts")}
        if lent:
            parameters = {n: p for n, p in parameters.items() if not _of(n, format_name, "experts")}
            parameters.update(_noted(lent, _LENDER, engine, "the engines share these kernels"))
    parameters.update(_widest(rivals))
    return replace(own, parameters=parameters)


def _shared(device: Accelerator, engine: str) -> list[str]:
    """Formats whose experts' kernels an engine shares with `_LENDER` on a device."""
    blackwell = (device.architecture or "").startswith("Blackwell") and stacked(device)
    return [name for name, engines in _SHARED.items() if blackwell and engine in engines]


_WIRE: Final = "collective.bandwidth_efficiency"


def _widest(rivals: Sequence[Profile]) -> dict[str, Parameter]:
    """What collectives reach of a link: engines take another algorithm where messages are large.

    Tables time one algorithm over all sizes, so the best of them describes large messages.
    """
    found: dict[str, Parameter] = {}
    for rival in rivals:
        for name, parameter in rival.parameters.items():
            known = found.get(name)
            if name.startswith(_WIRE) and (known is None or known.value < parameter.value):
                found[name] = replace(parameter, note=f"of {rival.engine}'s tables, the best here")
    return found


def _kernels(device: str, engine: str) -> Profile:
    """The kernel part of a shipped profile, or of one transferred."""
    try:
        found = profile_store.choose(device, engine)
    except InputError:
        found = None
    profile = found or transferred(find(device), engine)
    own = {n: p for n, p in profile.parameters.items() if not of_steps(n)}
    return replace(profile, parameters=own, curves={})


def _measures(profile: Profile, stored: str) -> bool:
    efficiency = profile.parameters.get(f"gemm.bandwidth_efficiency.{stored}")
    return efficiency is not None and efficiency.origin in ("fitted", "measured")


def _of(name: str, stored: str, kind: str = "gemm") -> bool:
    """Whether a parameter is that of all products of a kind in a format."""
    return name.startswith(f"{kind}.") and name.count(".") == 2 and name.endswith(f".{stored}")


_FASTEST: Final = "the fastest products on this device"


def _noted(
    lent: Mapping[str, Parameter], lender: str, engine: str, why: str
) -> dict[str, Parameter]:
    if lender == engine:
        return dict(lent)
    note = f"of {lender}'s tables, {why}"
    return {name: replace(parameter, note=note) for name, parameter in lent.items()}


def _log_time(profile: Profile, stored: WeightFormat) -> float:
    """Mean logarithm of the time of products over usual shapes, launches left out."""
    roofs = Roofs(find(profile.device), profile)
    return float(
        np.mean([np.log(_product_s(roofs, stored, n, k, m)) for n, k in _SHAPES for m in _ROWS])
    )


def _product_s(roofs: Roofs, stored: WeightFormat, n: int, k: int, m: float) -> float:
    operator = Operator(
        name="product",
        kind="gemm",
        dtype=stored.compute,
        format=stored.name,
        launches=0.0,
        flops=np.asarray(2.0 * m * n * k),
        weight_bytes=np.asarray(stored.bytes(n, k)),
        activation_bytes=np.asarray(2.0 * m * (n + k)),
        rows=np.asarray(m),
        depth=np.asarray(float(k)),
    )
    return float(operator_time(operator, roofs).total_s)


_USUAL: Final[Mapping[str, float]] = {
    "gemm.bandwidth_efficiency": 0.8,
    "gemm.compute_efficiency": 0.7,
    "experts.bandwidth_efficiency": 0.7,
    "experts.compute_efficiency": 0.5,
    "attention.bandwidth_efficiency": 0.8,
    "attention.compute_efficiency": 0.5,
    "state.bandwidth_efficiency": 0.8,
}


_PEAK: Final = "peak_flops_per_s.fp16"
_FLOP_PER_BYTE: Final = 30.0
"""FLOP/s per byte/s of memory bandwidth where a spec states no peak. Assumed: Apple's GPUs of the M1 to
M4 generations lie between 26 (M1 Max: 10.4 TFLOP/s, 400 GB/s) and 38 (M1: 2.6 TFLOP/s, 68 GB/s)."""


def _plain(device: Accelerator, engine: str) -> Profile:
    assumed = {
        name: Parameter(value, "1", "assumed", note="usual on measured GPUs")
        for name, value in _USUAL.items()
    }
    bandwidth = device.memory_bandwidth_bytes_per_s
    roofs = {} if device.peak_flops_per_s or not bandwidth else {_PEAK: _FLOP_PER_BYTE * bandwidth}
    name = f"{device.id} under {engine}"
    return Profile(name, device.id, engine, "no kernel tables", assumed, roofs=roofs)
