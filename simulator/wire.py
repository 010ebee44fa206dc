"""How long a collective takes: latency + bytes / (e L), by what joins its ranks.

    t = max(bytes / (e L), crossing bytes / (e' N)) + latency + latency'

L is the bandwidth of the link inside a node, N that of one network adapter, e and e' what they reach.
A ring through nodes of g devices uses all g adapters of a node at once, so each carries a g-th of
what a device sends; a token crosses where its target stands in another node, a
stage's output where the next stage does. What no profile measured comes from hardware/links.toml;
the ideal profile reaches every link and waits for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from roofcast.hardware import links
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.simulator.passes import Operator
from roofcast.simulator.workload import Array

PATTERNS: Final[Mapping[str, links.Pattern]] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "logits_gather": "all_gather",
    "reduce_scatter": "all_gather",
    "dispatch": "all_to_all",
    "combine": "all_to_all",
    "send": "send",
}
"""How each collective operator communicates."""


def wire_time(operator: Operator, device: Accelerator, profile: Profile) -> tuple[Array, Array]:
    """Seconds on the wire, and of latency, of one collective operator."""
    pattern = PATTERNS[operator.name]
    ranks = 2 if pattern == "send" else operator.peers
    inner = links.inside(device, ranks, pattern)
    local = min(ranks, links.node_devices(device))
    reach = _value(profile, "bandwidth_efficiency", operator.name, local, inner.efficiency, 1.0)
    latency = _value(profile, "latency_s", operator.name, local, inner.latency_s, 0.0)
    wire = operator.link_bytes / (reach * inner.bytes_per_s)
    outer = links.across(device, operator.peers, pattern)
    if outer is not None:
        exact = profile.engine == "ideal"
        share = crossing(pattern, operator, links.node_devices(device))
        bandwidth = outer.bytes_per_s * (1.0 if exact else outer.efficiency)
        wire = np.maximum(wire, operator.link_bytes * share / bandwidth)
        hops = share if pattern == "send" else 1.0
        latency += 0.0 if exact else hops * outer.latency_s
    waiting = profile.value("collective.fixed_scale", 1.0)
    return np.asarray(wire), np.asarray(operator.launches * latency * waiting)


def crossing(pattern: links.Pattern, operator: Operator, node: int) -> float:
    """Share of a rank's bytes that each network adapter carries.

    >>> over_two_nodes = Operator("dispatch", "collective", "bf16", "bf16", 1.0, peers=16)
    >>> round(crossing("all_to_all", over_two_nodes, 8), 3), crossing("all_reduce", over_two_nodes, 8)
    (0.533, 0.125)
    """
    ranks = operator.peers
    if pattern == "all_to_all":
        return (ranks - node) / (ranks - 1)
    if pattern == "send":
        return min((math.ceil(ranks / node) - 1) / operator.launches, 1.0)
    return 1.0 / node


def _value(
    profile: Profile, name: str, operator: str, ranks: int, usual: float, perfect: float
) -> float:
    """What the profile measured; else perfect where it is ideal, else what such links usually do."""
    default = perfect if profile.engine == "ideal" else usual
    return profile.value(f"collective.{name}", default, f"{operator}.{ranks}", operator, str(ranks))
