"""The CPU this process runs on, as the operating system describes it.

Bandwidth and peaks stay unknown: no file states them, a calibration measures
them. Cores and memory are those this process may use, so a container's limits
count. Every reader takes the root of the file system, so tests can fake it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofcast.hardware import container_limits
from roofcast.hardware.accelerator import Accelerator, Provenance
from roofcast.hardware.container_limits import read

# Instruction sets that decide how fast a CPU multiplies matrices, in the kernel's spelling.
_VECTOR_FLAGS = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_bf16", "amx_int8"),
    *("asimd", "sve", "sve2", "bf16", "i8mm"),
)


@dataclass(frozen=True, slots=True)
class HostCpu:
    """What was found; None where the system does not say."""

    model: str
    cores: int
    source: str
    vendor: str = "unknown"
    isa: str | None = None
    memory_total_bytes: int | None = None
    memory_usable_bytes: int | None = None
    max_clock_hz: float | None = None
    l2_bytes: int | None = None
    llc_bytes: int | None = None


def host_accelerator() -> Accelerator:
    """The CPU of this machine as an `Accelerator` whose bandwidth and peaks are unknown."""
    found = read_macos() if sys.platform == "darwin" else read_linux(Path("/"), _affinity())
    return as_accelerator(found)


def as_accelerator(cpu: HostCpu) -> Accelerator:
    """`cpu` as a device; its id tells models and core counts apart.

    >>> as_accelerator(HostCpu("Intel(R) Xeon(R) Processor @ 2.20GHz", 2, "/proc")).id
    'cpu-intel-xeon-processor-2-cores'
    """
    model = clean_model(cpu.model)
    cores = f"{cpu.cores} {'core' if cpu.cores == 1 else 'cores'}"
    found: dict[str, Any] = {
        "compute_units": cpu.cores,
        "memory_capacity_bytes": cpu.memory_total_bytes,
        "memory_usable_bytes": cpu.memory_usable_bytes,
        "boost_clock_hz": cpu.max_clock_hz,
        "l2_bytes": cpu.l2_bytes,
        "llc_bytes": cpu.llc_bytes,
    }
    numbers = {name: value for name, value in found.items() if value is not None}
    return Accelerator(
        id=f"cpu-{slug(model)}-{slug(cores)}",
        name=f"{model} ({cores})",
        vendor=cpu.vendor,
        kind="cpu",
        architecture=platform.machine() or None,
        isa=cpu.isa,
        scale_up_link="none",
        **numbers,
        provenance=dict.fromkeys(numbers, Provenance(cpu.source, "measured")),
    )


def clean_model(model: str) -> str:
    """A model name without trademarks, clock and filler.

    >>> clean_model("Intel(R) Core(TM) i7-1185G7 CPU @ 3.00GHz")
    'Intel Core i7-1185G7'
    >>> clean_model("AMD EPYC 9654 96-Core Processor")
    'AMD EPYC 9654'
    """
    text = re.sub(r"\((R|TM|C)\)|@.*$|\bCPU\b|\b\d+-Core Processor\b", " ", model, flags=re.I)
    return " ".join(text.split()) or "unknown"


def slug(name: str) -> str:
    """Lower case, words joined by dashes.

    >>> slug("NVIDIA GeForce RTX 3080 Ti")
    'nvidia-geforce-rtx-3080-ti'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")


def read_linux(root: Path, allowed: frozenset[int] | None) -> HostCpu:
    """From /proc and /sys under `root`; `allowed` are the CPUs this process may run on."""
    info = _first_processor(root / "proc/cpuinfo")
    flags = set((info.get("flags") or info.get("Features") or "").split())
    present = _present_cpus(root)
    usable = frozenset(present) & allowed if allowed else frozenset(present)
    total = _memory_total(root / "proc/meminfo")
    limit = container_limits.memory_bytes(root)
    caches = _caches(root, usable)
    outer = max((level for level in caches if level > 2), default=None)
    return HostCpu(
        model=info.get("model name") or _arm_model(info) or platform.processor() or "unknown",
        vendor=_vendor(info),
        cores=_usable_cores(len(usable) or 1, container_limits.cpus(root)),
        isa=" ".join(flag for flag in _VECTOR_FLAGS if flag in flags) or None,
        memory_total_bytes=total,
        memory_usable_bytes=min((x for x in (total, limit) if x), default=None),
        max_clock_hz=_max_clock(root),
        l2_bytes=caches.get(2),
        llc_bytes=caches[outer] if outer else None,
        source="/proc and /sys of this machine",
    )


def read_macos() -> HostCpu:
    """From `sysctl`; unified memory counts as the CPU's."""
    memory = _sysctl_int("hw.memsize")
    return HostCpu(
        model=sysctl("machdep.cpu.brand_string") or "unknown",
        vendor="Apple" if platform.machine() == "arm64" else "Intel",
        cores=os.cpu_count() or 1,
        memory_total_bytes=memory,
        memory_usable_bytes=memory,
        l2_bytes=_sysctl_int("hw.l2cachesize"),
        llc_bytes=_sysctl_int("hw.l3cachesize"),
        source="sysctl of this machine",
    )


def sysctl(name: str) -> str | None:
    """The value of a macOS kernel variable, or None where there is none."""
    try:
        answer = subprocess.run(
            ["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _sysctl_int(name: str) -> int | None:
    text = sysctl(name)
    return int(text) if text and text.isdigit() and int(text) else None


def _affinity() -> frozenset[int] | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def _usable_cores(cpus: int, quota: float | None) -> int:
    """Whole CPUs: a quota of 2.5 keeps two threads busy without being throttled."""
    return cpus if quota is None else max(1, min(cpus, int(quota)))


def _first_processor(path: Path) -> dict[str, str]:
    """The fields of the first processor of /proc/cpuinfo that names them."""
    fields: dict[str, str] = {}
    for line in (read(path) or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _vendor(info: Mapping[str, str]) -> str:
    names = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
    given = info.get("vendor_id", "")
    return names.get(given, given or ("Arm" if "CPU implementer" in info else "unknown"))


def _arm_model(info: Mapping[str, str]) -> str | None:
    """Arm kernels give numbers instead of a name; they still tell models apart."""
    if "CPU implementer" not in info:
        return None
    return f"Arm {info['CPU implementer']} part {info.get('CPU part', 'unknown')}"


def _present_cpus(root: Path) -> tuple[int, ...]:
    listed = read(root / "sys/devices/system/cpu/online")
    if listed:
        return tuple(_cpu_list(listed))
    return tuple(range(os.cpu_count() or 1))


def _cpu_list(text: str) -> Iterator[int]:
    """The numbers of a kernel CPU list such as `0-3,8`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            yield from range(int(first), int(last or first) + 1)


def _memory_total(path: Path) -> int | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", read(path) or "", flags=re.M)
    return int(found.group(1)) * 1024 if found else None


def _caches(root: Path, cpus: Iterable[int]) -> dict[int, int]:
    """Bytes of data or unified cache by level, summed over the distinct caches of `cpus`."""
    sizes: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for index in (root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            level = read(index / "level") or ""
            size = re.fullmatch(r"(\d+)([KM]?)", read(index / "size") or "")
            if level.isdigit() and size and read(index / "type") != "Instruction":
                shared = read(index / "shared_cpu_list") or str(cpu)
                sizes[int(level), shared] = int(size[1]) * {"K": 2**10, "M": 2**20}.get(size[2], 1)
    totals: dict[int, int] = {}
    for (number, _), size_bytes in sizes.items():
        totals[number] = totals.get(number, 0) + size_bytes
    return totals


def _max_clock(root: Path) -> float | None:
    khz = read(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    return float(khz) * 1e3 if khz and khz.isdigit() else None
