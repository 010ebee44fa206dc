"""A profile for a device nobody measured: what its nearest measured relatives achieve.

Efficiencies travel better than times: a fraction of one device's bandwidth is a fair guess of
another's, and so is the fixed cost of a kernel. How far two devices are apart:

    distance = 0 same architecture, 1 same vendor, 2 otherwise
             + 0.5 where one has stacked memory (HBM) and the other hasn't
             + 0.1 |ln(bandwidth ratio)|

Those nearest up to `SPREAD` further lend their parameters, in geometric mean. What that costs was
measured by leaving each device out in turn: transfer.toml holds the errors, and the interval widens
by them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError, unknown
from roofcast.hardware.profile import Band, Parameter, Profile
from roofcast.hardware.profile_store import read, shipped

_DATA: Final = Path(__file__).with_name("transfer.toml")
SPREAD: Final = 0.3
NEAR: Final = 0.5
_COMMON: Final = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True, slots=True)
class Relative:
    """A measured device and how far it is."""

    profile: Profile
    distance: float


def distance(one: Accelerator, other: Accelerator) -> float:
    """How unlike two devices are, as defined above.

    >>> round(distance(find("h100-sxm-80gb"), find("gh200-96gb")), 2)  # Hopper both, 3.35 and 4 TB/s
    0.02
    """
    apart = 2.0
    if one.vendor == other.vendor:
        apart = 1.0
    if _family(one) is not None and _family(one) == _family(other):
        apart = 0.0
    if stacked(one) != stacked(other):
        apart += 0.5
    ours, theirs = one.memory_bandwidth_bytes_per_s, other.memory_bandwidth_bytes_per_s
    if ours and theirs:
        apart += 0.1 * abs(math.log(ours / theirs))
    return apart


def near(device: Accelerator) -> bool:
    """Whether a relative of like architecture and memory was measured under today's engines."""
    today = [profile for profile in _shipped_profiles() if profile.engine in _COMMON]
    return any(distance(device, find(profile.device)) < NEAR for profile in today)


def transferred(
    device: Accelerator, engine: str | None = None, among: Iterable[Profile] | None = None
) -> Profile:
    """A profile from the nearest measured relatives under an engine (vllm where none is named).

    `among` replaces the shipped profiles. Raises UnknownNameError for an engine nobody measured.
    """
    known = list(_shipped_profiles() if among is None else among)
    wanted = engine or next(
        (name for name in _COMMON if any(p.engine == name for p in known)), None
    )
    measured = [profile for profile in known if profile.engine == wanted]
    if not measured:
        if not known or wanted is None:
            raise InputError(f"no measured relatives of {device.id}: no profiles are shipped")
        raise unknown("engine", wanted, sorted({profile.engine for profile in known}))
    lenders = _nearest(device, measured)
    return _blend(device, str(wanted), lenders)


def _nearest(device: Accelerator, measured: Sequence[Profile]) -> list[Relative]:
    ranked = sorted(
        (Relative(profile, distance(device, find(profile.device))) for profile in measured),
        key=lambda relative: relative.distance,
    )
    reach = ranked[0].distance + SPREAD
    return [relative for relative in ranked if relative.distance <= reach]


def _blend(device: Accelerator, engine: str, lenders: Sequence[Relative]) -> Profile:
    names = ", ".join(relative.profile.device for relative in lenders)
    nearest = lenders[0].distance
    profiles = [relative.profile for relative in lenders]
    parameters = {
        name: _mean(name, profiles, names)
        for name in sorted({name for profile in profiles for name in profile.parameters})
    }
    ranges = profiles[0].valid_range
    return Profile(
        name=f"{device.id} under {engine}, from {names}",
        device=device.id,
        engine=engine,
        origin=f"transferred from {names} (distance {nearest:.2f})",
        parameters=parameters,
        roofs=_roofs(device, lenders),
        valid_range=ranges,
        band=_band(profiles, nearest),
        bands=_bands(profiles, nearest),
        warnings=(f"{device.id} was not measured: efficiencies are those of {names}",),
    )


def _roofs(device: Accelerator, lenders: Sequence[Relative]) -> Mapping[str, float]:
    """Peaks that neither spec knows, in proportion to bandwidth; none where the spec has peaks."""
    bandwidth = device.memory_bandwidth_bytes_per_s
    if device.peak_flops_per_s or not bandwidth:
        return {}
    found: dict[str, float] = {}
    for relative in lenders:
        theirs = find(relative.profile.device).memory_bandwidth_bytes_per_s
        for name, value in relative.profile.roofs.items():
            if theirs and name.startswith("peak_flops_per_s."):
                found.setdefault(name, value / theirs * bandwidth)
    return found


def _mean(name: str, profiles: Sequence[Profile], names: str) -> Parameter:
    """The geometric mean of a parameter over the relatives that have it; its error is their spread."""
    have = [profile.parameters[name] for profile in profiles if name in profile.parameters]
    values = [parameter.value for parameter in have]
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < len(values):
        value, error = sum(values) / len(values), None
    else:
        middle = sum(logs) / len(logs)
        value, error = math.exp(middle), None
        if len(logs) > 1:
            spread = math.sqrt(sum((x - middle) ** 2 for x in logs) / (len(logs) - 1))
            error = value * spread
    return replace(
        have[0], value=value, origin="transferred", standard_error=error,
        sources=(f"profiles of {names}",), note="",
    )  # fmt: skip


def _band(profiles: Sequence[Profile], apart: float) -> Band | None:
    """The relatives' interval, widened by what a transfer over that distance was off."""
    bands = [profile.band for profile in profiles if profile.band is not None]
    if not bands:
        return None
    extra = transfer_error(apart)
    low = -math.hypot(min(band.low for band in bands), extra)
    high = math.hypot(max(band.high for band in bands), extra)
    return Band(low, high, f"relatives' interval, widened by {extra:.2f} for the transfer")


def _bands(profiles: Sequence[Profile], apart: float) -> dict[str, Band]:
    """The relatives' intervals of served metrics, each widened in the same way."""
    metrics = sorted({metric for profile in profiles for metric in profile.bands})
    found = {}
    for metric in metrics:
        lent = [replace(p, band=p.bands[metric]) for p in profiles if metric in p.bands]
        band = _band(lent, apart)
        if band is not None:
            found[metric] = band
    return found


def transfer_error(apart: float) -> float:
    """80 % of kernels were forecast within exp(+-this) when devices so far apart lent to each other."""
    steps: list[Mapping[str, float]] = _errors()["step"]
    for step in steps:
        if apart <= step["up_to"]:
            return step["log_error"]
    return steps[-1]["log_error"]


@cache
def _errors() -> Mapping[str, Any]:
    return tomllib.loads(_DATA.read_text("utf-8"))


@cache
def _shipped_profiles() -> tuple[Profile, ...]:
    return tuple(read(path) for path in shipped())


def _family(device: Accelerator) -> str | None:
    """Ampere, Hopper, Blackwell, ...: the first word of the architecture."""
    return device.architecture.split()[0] if device.architecture else None


def stacked(device: Accelerator) -> bool:
    """Whether memory is stacked beside the chip (HBM)."""
    return (device.memory_type or "").upper().startswith("HBM")
