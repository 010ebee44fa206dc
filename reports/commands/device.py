"""`roofcast device`: the catalogue, one device with its sources, or the attached one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import all_accelerators
from roofcast.hardware.profile_store import find_profiles
from roofcast.reports import device_text, options, output, units
from roofcast.reports.tables import Column, Table
from roofcast.simulator.api import find_device

app = options.new_app()

_UNVERIFIED = "?"


@app.command()
def device(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="An id or alias (h100-sxm), a TOML spec, or auto for the attached one.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """List the devices, or show one with the source of every number.

    \b
    Examples:
      roofcast device
      roofcast device h100-sxm
      roofcast device auto --json
    """
    if name is None:
        devices = all_accelerators()
        if json:
            output.emit_json([describe(each) for each in devices])
        else:
            output.show(catalogue(devices))
            output.say()
            output.say(
                f"{len(devices)} devices; {_UNVERIFIED} marks numbers that no vendor document was "
                "found for. `roofcast device NAME` gives sources, `roofcast device auto` the "
                "attached device."
            )
        return
    found = find_device(name)
    if json:
        output.emit_json(describe(found))
    else:
        _print(found)


def describe(device: Accelerator) -> dict[str, Any]:
    """What `--json` prints: SI values, each with source and confidence; profiles by engine."""
    numbers = {
        key: {
            "value": value,
            "source": device.provenance[key].source if key in device.provenance else None,
            "confidence": device.provenance[key].confidence if key in device.provenance else None,
        }
        for key, value in device.known_numbers()
    }
    return {
        "id": device.id,
        "name": device.name,
        "vendor": device.vendor,
        "kind": device.kind,
        "architecture": device.architecture,
        "aliases": list(device.aliases),
        "numbers": numbers,
        "notes": list(device.notes),
        "profiles": [
            {"name": profile.name, "engine": profile.engine, "origin": profile.origin}
            for profile in find_profiles(device.id)
        ],
    }


def catalogue(devices: tuple[Accelerator, ...]) -> Table:
    """A row a device: what decode forecasts need most."""
    headers = {
        "memory_capacity_bytes": ("memory", 0),
        "memory_bandwidth_bytes_per_s": ("bandwidth", 0),
        "peak_flops_per_s.bf16": ("bf16", 1),
        "peak_flops_per_s.fp8": ("fp8", 3),
        "scale_up_bytes_per_s": ("link, one way", 4),
    }
    return Table(
        (
            Column("device", [device.id for device in devices], right=False),
            *(
                Column(header, [_cell(device, key) for device in devices], rank=rank)
                for key, (header, rank) in headers.items()
            ),
            Column("name", [device.name for device in devices], right=False, rank=2),
        )
    )


def _cell(device: Accelerator, key: str) -> str:
    value = dict(device.known_numbers()).get(key)
    if value is None:
        return units.UNKNOWN
    source = device.provenance.get(key)
    doubt = _UNVERIFIED if source and source.confidence == "unverified" else ""
    return device_text.written(key, value) + doubt


def _print(device: Accelerator) -> None:
    output.say(f"{device.name} ({device.id})")
    if device.aliases:
        output.say(f"also called {', '.join(device.aliases)}")
    output.say()
    sources = device_text.sources(device)
    output.show(device_text.numbers(device, sources))
    output.say()
    for number, source in enumerate(sources, start=1):
        output.say(f"[{number}] {source}")
    for text in device.notes:
        output.say(f"Note: {text}")
    profiles = find_profiles(device.id)
    for profile in profiles:
        output.say(f"Profile {profile.name} ({profile.engine}): {profile.origin}")
    if not profiles:
        output.say("No profile of its own.")
