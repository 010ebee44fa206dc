"""A device as it stands in a machine room: with a network, with or without peer access."""

from __future__ import annotations

from dataclasses import replace

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError
from roofcast.simulator.api import find_device


def placed(
    name: str, network_gb_per_s: float | None, peer_access: bool | None = None
) -> Accelerator:
    """A device by name, with what the options say about its surroundings."""
    device = find_device(name)
    if network_gb_per_s is not None:
        if not network_gb_per_s > 0:
            raise InputError(f"--network must be above 0 GB/s, not {network_gb_per_s:g}")
        device = replace(device, network_bytes_per_s=network_gb_per_s * 1e9)
    return device if peer_access is None else replace(device, peer_access=peer_access)
