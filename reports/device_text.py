"""The numbers of a device's spec in words, with units and sources."""

from __future__ import annotations

from roofcast.hardware.accelerator import Accelerator, Provenance
from roofcast.reports import units
from roofcast.reports.tables import Column, Table

_WORDS = {
    "memory_capacity_bytes": ("memory", units.capacity),
    "memory_usable_bytes": ("memory, as the driver reports it", units.gib),
    "memory_bandwidth_bytes_per_s": ("memory bandwidth", units.rate),
    "fp8_fp16_accumulate_flops_per_s": ("peak fp8, fp16 accumulation", units.flop_rate),
    "compute_units": ("compute units", units.count),
    "boost_clock_hz": ("boost clock", lambda value: units.tidy(value, "Hz")),
    "l2_bytes": ("L2 cache", units.capacity),
    "llc_bytes": ("last-level cache", units.capacity),
    "tdp_w": ("power (TDP)", lambda value: units.tidy(value, "W")),
    "scale_up_bytes_per_s": ("scale-up link, one way", units.rate),
    "scale_up_max_devices": ("devices on that link", units.count),
    "pcie_generation": ("PCIe generation", units.count),
    "pcie_lanes": ("PCIe lanes", units.count),
    "node_devices": ("devices of a node", units.count),
    "network_bytes_per_s": ("network, one direction", units.rate),
    "price_usd": ("price, USD", units.count),
    "rent_usd_per_hour": ("rent, USD per hour", units.significant),
}
"""How each number of a spec is named and written; peaks by dtype are `_PEAK` and the dtype."""

_PEAK = "peak_flops_per_s."


def named(key: str) -> str:
    """A number's name in words.

    >>> named("memory_bandwidth_bytes_per_s"), named("peak_flops_per_s.bf16")
    ('memory bandwidth', 'peak bf16')
    """
    return f"peak {key.removeprefix(_PEAK)}" if key.startswith(_PEAK) else _WORDS[key][0]


def written(key: str, value: float) -> str:
    """A number with its unit.

    >>> written("memory_capacity_bytes", 80 * 2**30), written("peak_flops_per_s.bf16", 989.4e12)
    ('80 GiB', '989 TFLOP/s')
    """
    return units.flop_rate(value) if key.startswith(_PEAK) else _WORDS[key][1](value)


def numbers(device: Accelerator, sources: list[str]) -> Table:
    """Every number with its confidence and its source; `sources` are what [1], [2] stand for."""
    known = list(device.known_numbers())
    origins = [device.provenance.get(key) for key, _ in known]
    return Table(
        (
            Column("number", [named(key) for key, _ in known], right=False),
            Column("value", [written(key, value) for key, value in known]),
            Column("confidence", [each.confidence if each else "" for each in origins], False),
            Column("source", [_reference(sources, each) for each in origins], right=False),
        )
    )


def sources(device: Accelerator) -> list[str]:
    """Where the numbers of a device come from, each once, in order of first use."""
    origins = (device.provenance.get(key) for key, _ in device.known_numbers())
    return list(dict.fromkeys(origin.source for origin in origins if origin))


def _reference(sources: list[str], origin: Provenance | None) -> str:
    return f"[{sources.index(origin.source) + 1}]" if origin else ""
