"""The device attached to this machine: a GPU that torch can use, else the CPU.

A GPU whose driver name and memory match a device of the catalogue is that
device, with the memory total that its driver reports; any other is described by
what the driver says, and its bandwidth and peaks stay unknown until measured.
Torch is imported only where a GPU could be: importing it takes seconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

from roofcast.hardware.accelerator import Accelerator, Provenance
from roofcast.hardware.catalog import with_driver_name
from roofcast.hardware.errors import InputError, unknown
from roofcast.hardware.host_cpu import host_accelerator, slug, sysctl

Preference = Literal["auto", "cpu", "cuda", "mps"]

# A driver shows up to 8 % less than the marketed capacity (ECC, reserved pages), never much more;
# cards of one name with another memory size differ by a third or more.
_MEMORY_TOLERANCE = 0.12
_GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg", "/dev/nvhost-gpu")


def attached(prefer: str = "auto") -> Accelerator:
    """The device to forecast and to calibrate here.

    `auto` takes the first CUDA or ROCm device, else Apple's GPU, else the CPU;
    naming one makes its absence an InputError. ROCm devices count as `cuda`, as
    they do in torch.
    """
    if prefer not in get_args(Preference):
        raise unknown("device to attach", prefer, get_args(Preference))
    if prefer == "cpu" or (prefer == "auto" and not _gpu_is_likely()):
        return host_accelerator()
    torch = _torch()
    if torch is None:
        if prefer == "auto":
            return host_accelerator()
        raise InputError(f"{prefer}: torch is not installed; pip install 'roofcast[calibrate]'")
    if prefer in ("auto", "cuda") and torch.cuda.is_available():
        return _cuda_device(torch)
    if prefer in ("auto", "mps") and torch.backends.mps.is_available():
        return _mps_device()
    if prefer == "auto":
        return host_accelerator()
    raise InputError(f"{prefer}: torch {torch.__version__} finds no such device on this machine")


def _torch() -> ModuleType | None:
    if importlib.util.find_spec("torch") is None:
        return None
    return importlib.import_module("torch")


def _gpu_is_likely() -> bool:
    """Whether importing torch could find a GPU: a driver's device node, or not Linux at all."""
    return not sys.platform.startswith("linux") or any(Path(node).exists() for node in _GPU_NODES)


def _cuda_device(torch: Any) -> Accelerator:
    properties = torch.cuda.get_device_properties(0)
    name = properties.name.strip()
    usable_bytes = int(properties.total_memory)
    source = Provenance(f"driver of this machine, through torch {torch.__version__}", "measured")
    for device in with_driver_name(name):
        if _memory_agrees(device, usable_bytes):
            return replace(
                device,
                memory_usable_bytes=usable_bytes,
                provenance={**device.provenance, "memory_usable_bytes": source},
            )
    return _undocumented(properties, name, bool(torch.version.hip), source)


def _memory_agrees(device: Accelerator, usable_bytes: int) -> bool:
    expected = device.memory_bytes
    return abs(usable_bytes - expected) <= _MEMORY_TOLERANCE * expected


def _undocumented(properties: Any, name: str, is_amd: bool, source: Provenance) -> Accelerator:
    """A GPU outside the catalogue, as its driver describes it."""
    found: dict[str, Any] = {
        "memory_usable_bytes": int(properties.total_memory),
        "compute_units": int(properties.multi_processor_count),
        "l2_bytes": int(getattr(properties, "L2_cache_size", 0)),
        "boost_clock_hz": float(getattr(properties, "clock_rate", 0)) * 1e3,  # reported in kHz
    }
    numbers = {key: value for key, value in found.items() if value}
    return Accelerator(
        id=f"{slug(name)}-{round(properties.total_memory / 2**30)}gib",
        name=name,
        vendor="AMD" if is_amd else "NVIDIA",
        kind="gpu",
        isa=properties.gcnArchName if is_amd else f"{properties.major}.{properties.minor}",
        driver_names=(name,),
        **numbers,
        provenance=dict.fromkeys(numbers, source),
    )


def _mps_device() -> Accelerator:
    """Apple's GPU, with this machine's memory; a chip sold in several bins stays undocumented."""
    host = host_accelerator()
    chip = sysctl("machdep.cpu.brand_string") or host.name
    matches = with_driver_name(chip)
    device = (
        matches[0]
        if len(matches) == 1
        else Accelerator(id=slug(f"{chip} gpu"), name=f"{chip} GPU", vendor="Apple", kind="soc")
    )
    memory = [key for key in host.provenance if key.startswith("memory_")]
    values: dict[str, Any] = {key: getattr(host, key) for key in memory}
    own = {key: host.provenance[key] for key in memory}
    return replace(device, **values, provenance={**device.provenance, **own})
