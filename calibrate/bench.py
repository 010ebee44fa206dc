"""Where measurements are made: the device in torch, its clock, its cold buffer, its limits."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import torch

from roofcast.calibrate.arena import Arena, make_arena
from roofcast.calibrate.clock import Clock, GraphClock, clock_for
from roofcast.calibrate.decoder import DTYPES
from roofcast.calibrate.mlp import can_group
from roofcast.calibrate.samples import Task
from roofcast.hardware.accelerator import Accelerator

_CACHE_UNKNOWN_BYTES = 64 << 20


@dataclass(frozen=True)
class Bench:
    """Everything a measurement needs to run."""

    accelerator: Accelerator
    device: torch.device
    dtype: str
    arena: Arena
    memory_bytes: float
    packed: dict[str, list[Any]] = field(default_factory=dict, compare=False)
    """Matrices of the shape measured last, where the decoder packs them."""

    @property
    def step_clock(self) -> Clock:
        """For whole steps, host included."""
        return clock_for(self.device)

    @property
    def kernel_clock(self) -> Clock:
        """For kernels alone: graph replays where there are graphs."""
        return GraphClock() if self.device.type == "cuda" else self.step_clock

    def clock_of(self, task: Task) -> Clock:
        """The kernels' clock, except where the host takes part: experts that run one by one."""
        looped = task.kind == "experts" and not can_group(self.device, DTYPES[self.dtype])
        return self.step_clock if looped else self.kernel_clock


def torch_device(accelerator: Accelerator) -> torch.device:
    """The torch device an attached accelerator is."""
    if accelerator.kind == "cpu":
        return torch.device("cpu")
    return torch.device("mps" if accelerator.vendor == "Apple" else "cuda")


def main_dtype(device: torch.device) -> str:
    """What models are stored and computed in: bf16 where the device multiplies it natively.

    A CPU without bf16 instructions emulates it many times slower than fp32.
    """
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "mps":
        return "fp16"
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return "bf16" if native or getattr(torch.cpu, "_is_amx_tile_supported", bool)() else "fp32"


def total_memory(accelerator: Accelerator, device: torch.device) -> float:
    """Bytes the device has, whoever uses them now: what a plan may count on, the same every time."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    known = accelerator.memory_usable_bytes or accelerator.memory_capacity_bytes
    return float(known) if known else usable_memory(device)


def rank_count(device: torch.device) -> int:
    """Ranks that one machine can hold: its GPUs, or two halves of a CPU of two threads or more."""
    if device.type == "cuda":
        return torch.cuda.device_count()
    return 2 if device.type == "cpu" and torch.get_num_threads() > 1 else 1


def usable_memory(device: torch.device) -> float:
    """Bytes that may be used now."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return float(torch.mps.recommended_max_memory())
    return _available_memory()


def _available_memory() -> float:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024
    except OSError:
        pass
    return 0.5 * float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def cache_bytes(accelerator: Accelerator, device: torch.device) -> int:
    """The last-level cache: what the driver says, else the spec, else a guess on the large side."""
    if device.type == "cuda":
        stated = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        if stated:
            return max(stated, accelerator.llc_bytes or 0)
    return accelerator.llc_bytes or accelerator.l2_bytes or _CACHE_UNKNOWN_BYTES


def make_bench(accelerator: Accelerator) -> Bench:
    """A bench on an attached device; takes the memory of its cold buffer at once."""
    device = torch_device(accelerator)
    memory = usable_memory(device)
    if accelerator.memory_usable_bytes:
        memory = min(memory, float(accelerator.memory_usable_bytes))
    arena = make_arena(device, cache_bytes(accelerator, device), int(memory))
    return Bench(accelerator, device, main_dtype(device), arena, memory - arena.size)
