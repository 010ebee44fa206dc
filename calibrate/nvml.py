"""Clocks, power, temperature and throttle reasons of an NVIDIA GPU, through nvidia-ml-py if present."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

# nvml.h, nvmlClocksEventReasons: bits that mean the clock is held below what was asked for.
_REASONS = {
    0x2: "application clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}


def read(index: int) -> dict[str, str | float | None]:
    """What NVML says about a GPU now; empty where NVML or its Python package is missing.

    `index` counts as CUDA does, so CUDA_VISIBLE_DEVICES must not hide GPUs for the two to agree.
    """
    if importlib.util.find_spec("pynvml") is None:
        return {}
    library = importlib.import_module("pynvml")
    try:
        library.nvmlInit()
    except library.NVMLError:
        return {}
    try:
        return _read(library, index)
    finally:
        library.nvmlShutdown()


def _read(library: ModuleType, index: int) -> dict[str, str | float | None]:
    handle = library.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: object) -> float | None:
        try:
            return float(getattr(library, name)(handle, *arguments))
        except (library.NVMLError, AttributeError):  # this driver or card does not tell
            return None

    def scaled(value: float | None, factor: float) -> float | None:
        return None if value is None else value * factor

    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return {
        "driver": _text(library.nvmlSystemGetDriverVersion()),
        "sm_clock_hz": scaled(ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM), 1e6),
        "memory_clock_hz": scaled(ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM), 1e6),
        "power_w": scaled(ask("nvmlDeviceGetPowerUsage"), 1e-3),
        "power_limit_w": scaled(ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        "temperature_c": ask("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU),
        "processes": _processes(library, handle),
        "throttled_by": None if reasons is None else throttle_words(int(reasons)),
    }


def _processes(library: ModuleType, handle: object) -> float | None:
    """Processes that compute on the GPU, this one included."""
    try:
        return float(len(library.nvmlDeviceGetComputeRunningProcesses(handle)))
    except (library.NVMLError, AttributeError):
        return None


def throttle_words(mask: int) -> str:
    """Throttle reasons in words.

    >>> throttle_words(0x24), throttle_words(0x1)
    ('software power cap, software thermal slowdown', 'nothing')
    """
    return ", ".join(word for bit, word in _REASONS.items() if mask & bit) or "nothing"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
