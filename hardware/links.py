"""How devices reach each other: which medium joins so many ranks, its bandwidth and its latency.

A node holds one scale-up domain (NVLink, xGMI, ICI), or several joined by PCIe; nodes are joined by
network adapters, one a device. The numbers that a profile has not measured are in links.toml.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import UnknownSpecError

Medium = Literal["scale_up", "pcie", "host", "network"]
Pattern = Literal["all_reduce", "all_gather", "all_to_all", "send"]

NODE_DEVICES = 8
"""Devices of a server whose spec does not say. Assumed: eight is what most GPU servers hold."""


@dataclass(frozen=True, slots=True)
class Link:
    """A medium as one pattern of communication finds it, per device and direction."""

    medium: Medium
    bytes_per_s: float
    efficiency: float
    latency_s: float


def node_devices(device: Accelerator) -> int:
    """Devices in one node: what the spec says, at least those one scale-up link connects."""
    return device.node_devices or max(NODE_DEVICES, device.scale_up_max_devices or 0)


def domain_devices(device: Accelerator) -> int:
    """Devices that the scale-up link connects; all of a node where the spec does not say; 1 without.

    >>> from roofcast.hardware.catalog import find
    >>> [domain_devices(find(name)) for name in ("h100-sxm", "h100-nvl", "gb200", "rtx-4090")]
    [8, 2, 72, 1]
    """
    if device.scale_up_bytes_per_s is None:
        return 1
    return device.scale_up_max_devices or node_devices(device)


def medium(device: Accelerator, ranks: int) -> Medium:
    """What the slowest part of a collective over `ranks` devices travels on."""
    if ranks <= domain_devices(device):
        return "scale_up"
    if ranks <= node_devices(device):
        return "host" if device.peer_access is False else "pcie"
    return "network"


def inside(device: Accelerator, ranks: int, pattern: Pattern) -> Link:
    """The link of the ranks that share a node."""
    local = min(ranks, node_devices(device))
    name = medium(device, local)
    if name == "scale_up":
        bandwidth = device.require("scale_up_bytes_per_s")
    else:
        bandwidth = device.pcie_bytes_per_s
    return Link(name, bandwidth, *_reached(name, pattern, local))


def across(device: Accelerator, ranks: int, pattern: Pattern) -> Link | None:
    """The link between nodes, None where one node holds all ranks.

    UnknownSpecError where the network has no bandwidth.
    """
    node = node_devices(device)
    if ranks <= node:
        return None
    if device.network_bytes_per_s is None:
        raise UnknownSpecError(
            f"{ranks} ranks of {device.id} outgrow one node of {node}, and the network between nodes "
            "has no spec; give --network GB_PER_S (one direction, per device) or a spec that states it"
        )
    nodes = math.ceil(ranks / node)
    return Link("network", device.network_bytes_per_s, *_reached("network", pattern, nodes))


@cache
def _table() -> dict[str, Any]:
    text = resources.files("roofcast.hardware").joinpath("links.toml").read_text("utf-8")
    return tomllib.loads(text)


def source(name: Medium) -> str:
    """Where the numbers of a medium come from."""
    return str(_table()[name]["source"])


@cache
def _reached(name: Medium, pattern: Pattern, ranks: int) -> tuple[float, float]:
    """Efficiency and latency in seconds; straight lines over log2(ranks), the last one extended."""
    ends = [math.log2(each) for each in _table()["ranks"]]
    row = _table()[name][pattern]
    efficiency = _along(ends, row["efficiency"], math.log2(ranks), extend=False)
    return efficiency, _along(ends, row["latency_us"], math.log2(ranks), extend=True) * 1e-6


def _along(ends: list[float], values: list[float], at: float, *, extend: bool) -> float:
    """A polyline at one place; beyond its right end constant, or extended along its last piece.

    >>> _along([1.0, 2.0, 3.0], [1.0, 3.0, 5.0], 4.0, extend=True)
    7.0
    """
    if not extend:
        at = min(at, ends[-1])
    right = next((i for i in range(1, len(ends)) if at <= ends[i]), len(ends) - 1)
    slope = (values[right] - values[right - 1]) / (ends[right] - ends[right - 1])
    return values[right - 1] + slope * (max(at, ends[0]) - ends[right - 1])
