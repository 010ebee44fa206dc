"""Under what conditions a measurement was made: the machine, its settings, and who else used it.

Everything is read where it is readable (/proc, /sys, torch, NVML) and left out where it is not; nothing
here is required for a measurement.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calibrate import nvml

if TYPE_CHECKING:
    import torch

Condition = str | float

_GOVERNORS = Path("/sys/devices/system/cpu")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def read_conditions(device: torch.device) -> dict[str, Condition]:
    """Everything readable about the machine and its settings, now."""
    import torch

    found: dict[str, Condition | None] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _cpuinfo("model name") or platform.processor() or None,
        "threads": float(torch.get_num_threads()),
        "affinity": _affinity(),
        "governor": _governor(),
        "clock_hz": _clock_hz(),
        "load_average": _load_average(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
    }
    if device.type == "cpu":
        found["cpu_capability"] = str(torch.backends.cpu.get_cpu_capability())
        found["onednn"] = str(bool(torch._C._has_mkldnn))
    if device.type == "cuda":
        found |= _cuda(device)
    return {name: value for name, value in found.items() if value is not None}


def _cuda(device: torch.device) -> dict[str, Condition | None]:
    import torch

    properties = torch.cuda.get_device_properties(device)
    runtime = torch.version.cuda or getattr(torch.version, "hip", None)
    return {
        "gpu": properties.name,
        "gpu_memory_bytes": float(properties.total_memory),
        "gpu_processors": float(properties.multi_processor_count),
        "runtime": str(runtime),
        **nvml.read(device.index or 0),
    }


def _cpuinfo(field: str) -> str | None:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return None


def _affinity() -> str | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    return ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0)))


def _governor() -> str | None:
    paths = _GOVERNORS.glob("cpu[0-9]*/cpufreq/scaling_governor")
    names = {_text(path).strip() for path in paths} - {""}
    return ", ".join(sorted(names)) or None


def _clock_hz() -> float | None:
    mhz = _cpuinfo("cpu MHz")
    return float(mhz) * 1e6 if mhz else None


def _load_average() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Processor seconds since boot: all that ran, what the hypervisor withheld, and our own.

    `busy_s` and `stolen_s` are None where /proc/stat is unreadable. `capacity` is processors.
    """

    wall_s: float
    own_s: float
    busy_s: float | None
    stolen_s: float | None
    capacity: int


def read_ledger() -> Ledger:
    """The processor-time ledger now; two of them bracket a measurement."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = usage.ru_utime + usage.ru_stime + children.ru_utime + children.ru_stime
    busy, stolen = _proc_stat(_text(Path("/proc/stat")))
    return Ledger(time.perf_counter(), own, busy, stolen, os.cpu_count() or 1)


def _proc_stat(text: str) -> tuple[float | None, float | None]:
    """Busy and stolen seconds from the first line of /proc/stat: user nice system idle iowait ...

    Fields as in proc(5); guest time is inside user time.
    """
    words = text.partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return None, None
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(w) for w in words[1:9])
    return (user + nice + system + irq + softirq) / _TICKS, steal / _TICKS


def others_share(before: Ledger, after: Ledger) -> float:
    """Share of the processors' time that other processes used between two readings; NaN if unknown.

    >>> a = Ledger(0.0, 0.0, 0.0, 0.0, 2)
    >>> others_share(a, Ledger(10.0, 12.0, 17.0, 0.0, 2))
    0.25
    """
    wall = after.wall_s - before.wall_s
    if before.busy_s is None or after.busy_s is None or wall <= 0:
        return float("nan")
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(others, 0.0) / (wall * after.capacity)


def stolen_share(before: Ledger, after: Ledger) -> float:
    """Share of the processors' time the hypervisor gave to other guests; NaN if unknown."""
    wall = after.wall_s - before.wall_s
    if before.stolen_s is None or after.stolen_s is None or wall <= 0:
        return float("nan")
    return max(after.stolen_s - before.stolen_s, 0.0) / (wall * after.capacity)


_BUSY = 0.1  # share of the processors that others may use
_LISTEN_S = 0.5


def wait_passively_if_shared() -> bool:
    """Let OpenMP threads sleep, not spin, while they wait, where other processes want the processors.

    A thread that spins uses up its time slice; the scheduler then runs the others first, and every
    parallel region waits for it: with one core taken of two a decode step lasts thirty times as long.
    Only the environment can say so, and only before torch is loaded. Returns whether it did.
    """
    if "torch" in sys.modules or "OMP_WAIT_POLICY" in os.environ:
        return False
    before = read_ledger()
    time.sleep(_LISTEN_S)
    if not others_share(before, read_ledger()) > _BUSY:
        return False
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return True
