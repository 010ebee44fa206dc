"""TOML specs into `Accelerator`: the only place where GB, MHz and TFLOP/s become SI.

A user's file is checked against `spec_schema` first. A shipped file is not, at
run time: the tests check every one of them, and a lookup stays fast.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofcast.hardware.accelerator import DTYPES, Accelerator, Provenance
from roofcast.hardware.errors import bad_file, suggestion

# Key in the file -> attribute of Accelerator, and the factor to SI (an int: the value stays whole).
_NUMBERS: Mapping[str, tuple[str, float]] = {
    "memory.capacity_gb": ("memory_capacity_bytes", 10**9),
    "memory.capacity_gib": ("memory_capacity_bytes", 2**30),
    "memory.usable_bytes": ("memory_usable_bytes", 1),
    "memory.bandwidth_gb_per_s": ("memory_bandwidth_bytes_per_s", 1e9),
    **{f"peak_tflops.{dtype}": (f"peak_flops_per_s.{dtype}", 1e12) for dtype in DTYPES},
    "peak_tflops.fp8_fp16_accumulate": ("fp8_fp16_accumulate_flops_per_s", 1e12),
    "compute.units": ("compute_units", 1),
    "compute.boost_clock_mhz": ("boost_clock_hz", 1e6),
    "compute.l2_bytes": ("l2_bytes", 1),
    "compute.llc_bytes": ("llc_bytes", 1),
    "power.tdp_w": ("tdp_w", 1.0),
    "scale_up.gb_per_s_per_direction": ("scale_up_bytes_per_s", 1e9),
    "scale_up.max_devices": ("scale_up_max_devices", 1),
    "pcie.generation": ("pcie_generation", 1),
    "pcie.lanes": ("pcie_lanes", 1),
    "node.devices": ("node_devices", 1),
    "node.network_gb_per_s": ("network_bytes_per_s", 1e9),
    "price.usd": ("price_usd", 1.0),
    "price.rent_usd_per_hour": ("rent_usd_per_hour", 1.0),
}

_TEXTS: Mapping[str, str] = {
    "memory.type": "memory_type",
    "memory.capacity_note": "memory_capacity_note",
    "memory.bandwidth_note": "memory_bandwidth_note",
    "peak_tflops.note": "peak_note",
    "scale_up.link": "scale_up_link",
    "scale_up.note": "scale_up_note",
    "pcie.peer_access_note": "peer_access_note",
    "price.usd_note": "price_note",
    "price.rent_note": "rent_note",
}

_PLAIN = ("id", "name", "vendor", "kind", "architecture", "isa", "status", "year")
_TABLES = tuple(dict.fromkeys(key.partition(".")[0] for key in (*_NUMBERS, *_TEXTS)))
_LISTS = ("aliases", "families", "driver_names", "notes")


def read_shipped(path: Path) -> Accelerator:
    """A spec of the catalogue, trusted because the tests check every one."""
    return _accelerator(tomllib.loads(path.read_text(encoding="utf-8")))


def read_user(path: Path) -> Accelerator:
    """A spec from anywhere; FileFormatError says what is wrong with it."""
    from roofcast.hardware.spec_schema import SpecFile
    from roofcast.hardware.validation import check, read_toml

    document = check(SpecFile, read_toml(path), path).model_dump(exclude_none=True)
    provenance = document["provenance"]
    provenance["sources"] = provenance["sources"] or [str(path)]
    sourced = [*_NUMBERS, *_TEXTS]
    for key in (key for item in provenance["exceptions"] for key in item["fields"]):
        if key not in sourced:
            raise bad_file(
                path,
                f"{key!r} is no field with a source{suggestion(key, sourced)}",
                where="provenance.exceptions",
            )
    return _accelerator(document)


def _accelerator(document: Mapping[str, Any]) -> Accelerator:
    given = {
        f"{table}.{key}": value
        for table in _TABLES
        for key, value in document.get(table, {}).items()
    }
    values: dict[str, Any] = {key: document[key] for key in _PLAIN if key in document}
    values |= {key: tuple(document.get(key, ())) for key in _LISTS}
    values |= {_TEXTS[key]: value for key, value in given.items() if key in _TEXTS}
    if "pcie.peer_access" in given:
        values["peer_access"] = given["pcie.peer_access"]
    peaks: dict[str, float] = {}
    for key, (attribute, factor) in _NUMBERS.items():
        if key in given:
            mapping, _, dtype = attribute.partition(".")
            target = peaks if dtype else values
            target[dtype or mapping] = _si(given[key], factor)
    provenance = _provenance(document["provenance"], given)
    return Accelerator(**values, peak_flops_per_s=peaks, provenance=provenance)


def _si(value: float, factor: float) -> float:
    """Bytes and counts, whose factor is an int, stay whole."""
    return round(value * factor) if isinstance(factor, int) else value * factor


def _provenance(document: Mapping[str, Any], given: Mapping[str, object]) -> dict[str, Provenance]:
    """By attribute: the file's sources for every number, then the exceptions."""
    default = Provenance("; ".join(document["sources"]), document["confidence"])
    known = {key: default for key in given if key in _NUMBERS}
    for item in document.get("exceptions", ()):
        own = Provenance(
            item.get("source", default.source), item.get("confidence", default.confidence)
        )
        known |= {key: own for key in item["fields"] if key in given}
    return {_NUMBERS[key][0] if key in _NUMBERS else _TEXTS[key]: own for key, own in known.items()}
