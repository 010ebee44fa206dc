"""What it costs to forecast a device's kernels with its relatives' parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from roofcast.calibrate.fitting import Errors
from roofcast.calibrate.kernel_tables.groups import Group, groups
from roofcast.calibrate.kernel_tables.kernel_fit import Mask
from roofcast.calibrate.kernel_tables.sources import Folder, l2_bytes
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.profile import Profile
from roofcast.hardware.transfer import distance, transferred
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.workload import Array

_WITHIN: Final = 0.8
_PER_GROUP: Final = 2000


@dataclass(frozen=True, slots=True)
class TransferError:
    """Kernels of a device forecast without its own measurements, beside with them.

    `log_error` bounds 80 % of the log ratios measured / forecast.
    """

    device: str
    engine: str
    lenders: str
    distance: float
    own: Errors
    lent: Errors
    log_error: float


def leave_devices_out(
    directory: str | Path, profiles: Sequence[Profile]
) -> Iterator[TransferError]:
    """Each profile's device in turn, forecast from the others' profiles under the same engine.

    Rows that fit in the L2 cache are left out, as are collectives.
    """
    for profile in profiles:
        device = find(profile.device)
        others = [p for p in profiles if p.device != profile.device and p.engine == profile.engine]
        if not others:
            continue
        lent = transferred(device, profile.engine, others)
        folder = Folder.of(directory, device.id)
        ratios = [
            (_ratios(group, device, profile), _ratios(group, device, lent))
            for group in groups(folder, profile.engine)
            if group.table != "collective"
        ]
        own, borrowed = (np.concatenate(part) for part in zip(*ratios, strict=True))
        yield TransferError(
            device.id,
            profile.engine,
            lent.name.rpartition(", from ")[2],
            min(distance(device, find(other.device)) for other in others),
            Errors.of(own),
            Errors.of(borrowed),
            float(np.quantile(np.abs(borrowed), _WITHIN)),
        )


def _ratios(group: Group, device: Accelerator, profile: Profile) -> Array:
    """Log ratios measured / forecast of a group's cold rows, thinned so that groups weigh alike."""
    cold = _cold(group, device)
    chosen = np.flatnonzero(cold)
    if chosen.size > _PER_GROUP:
        chosen = np.random.default_rng(0).choice(chosen, _PER_GROUP, replace=False)
    rows = group.rows.where(chosen)
    roofs = Roofs(device, profile)
    total = np.zeros(rows.measured_s.shape)
    for operator in rows.operators:
        total = total + operator_time(operator, roofs).total_s
    return np.asarray(np.log(rows.measured_s / total))


def _cold(group: Group, device: Accelerator) -> Mask:
    cache = l2_bytes(device)
    if group.cached is None or cache is None:
        return np.ones(group.rows.measured_s.shape, dtype=bool)
    return np.asarray(group.rows.cached_bytes > 2 * cache)
