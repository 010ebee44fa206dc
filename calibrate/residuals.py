"""A profile beside the very samples it was fitted to: what it explains, and what it misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roofcast.calibrate import journal
from roofcast.calibrate.calibration import journal_path
from roofcast.calibrate.counted import KERNELS, operators_of
from roofcast.calibrate.overheads import decode_runs, forecast_s
from roofcast.calibrate.samples import Measurement
from roofcast.calibrate.steadying import steadied
from roofcast.hardware import profile_store
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.simulator.roofline import Roofs, operator_time


@dataclass(frozen=True, slots=True)
class Residual:
    """One task: its kind, its facts in words, what was measured and what the profile says."""

    kind: str
    label: str
    measured_s: float
    forecast_s: float
    bytes: float

    @property
    def log_ratio(self) -> float:
        """log(measured / forecast): 0.05 is 5 % slower than forecast."""
        return float(np.log(self.measured_s / self.forecast_s))

    @property
    def bytes_per_s(self) -> float:
        """What the kernel moved in a second."""
        return self.bytes / self.measured_s


def residuals_of(path: str | Path, device: Accelerator) -> tuple[Residual, ...]:
    """Residuals of a profile's own samples, which must lie beside it."""
    contents = journal.read(journal_path(Path(path)))
    profile = profile_store.read(path)
    measured = steadied(contents.measured)
    found = list(kernel_residuals(profile, device, measured))
    for entry in decode_runs(measured, contents.scale):
        times = forecast_s(entry, device, profile)
        workload = entry.work.workload
        points = zip(workload.batch, workload.context, entry.measured_s, times, strict=True)
        found += [
            Residual("decode", f"{entry.shape} batch={b:g} context={c:g}", float(m), float(t), 0.0)
            for b, c, m, t in points
        ]
    return tuple(found)


def kernel_residuals(
    profile: Profile, device: Accelerator, measured: Sequence[Measurement]
) -> tuple[Residual, ...]:
    """Micro-benchmarks beside the profile's times for them."""
    roofs = Roofs(device, profile)
    found = []
    for entry in measured:
        if entry.kind not in KERNELS or not entry.samples_s:
            continue
        operators = operators_of([entry.task])
        seconds = sum(float(operator_time(o, roofs).total_s.item()) for o in operators)
        moved = sum(float(np.asarray(operator.bytes).item()) for operator in operators)
        label = entry.task.key.removeprefix(f"{entry.kind} ")
        found.append(Residual(entry.kind, label, entry.median_s, seconds, moved))
    return tuple(found)
