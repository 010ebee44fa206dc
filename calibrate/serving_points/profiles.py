"""The profile that forecasts a point: shipped for its device and engine, else lent by relatives."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from roofcast.calibrate.serving_points.base import base_profile
from roofcast.calibrate.serving_points.conventions import EngineName
from roofcast.hardware import profile_store
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import UnknownNameError
from roofcast.hardware.profile import Profile
from roofcast.hardware.transfer import transferred


def serving_profile(device: Accelerator, named: EngineName) -> Profile:
    """The profile of a device under an engine.

    Where none is shipped, the nearest devices measured under that engine lend theirs; where the engine
    was never measured at all, kernels alone are known and the forecast says so.
    """
    try:
        found = profile_store.choose(device.id, named.engine)
    except UnknownNameError:
        found = None
    if found is not None:
        return found
    among = [profile for profile in _shipped() if profile.engine == named.engine]
    if among:
        return transferred(device, named.engine, among)
    base = base_profile(device, named.engine, named.kernels)
    warning = f"no steps of {named.engine} were measured: kernels only"
    return replace(base, warnings=(*base.warnings, warning))


@cache
def _shipped() -> tuple[Profile, ...]:
    return tuple(profile_store.read(path) for path in profile_store.shipped())
