"""Several calibrations of one device as one: more samples, one fit. Unlike conditions don't mix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roofcast.calibrate import journal
from roofcast.calibrate.calibration import Calibration, finish, journal_path
from roofcast.calibrate.comparison import changed_conditions
from roofcast.calibrate.journal import Contents, Journal
from roofcast.calibrate.samples import Measurement, joined
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError


def merge(profiles: Sequence[str | Path], out: str | Path, device: Accelerator) -> Calibration:
    """Fit the raw samples of several calibrations of `device` together, into a new profile.

    The samples must lie beside the profiles. InputError names the first condition that differs.
    """
    if len(profiles) < 2:
        raise InputError("merging needs at least two profiles")
    contents = [journal.read(journal_path(Path(path))) for path in profiles]
    for path, other in zip(profiles[1:], contents[1:], strict=True):
        _check_alike(Path(profiles[0]), contents[0], Path(path), other)
    if contents[0].header.device != device.id:
        raise InputError(
            f"{profiles[0]} is a calibration of {contents[0].header.device}, not of {device.id}"
        )
    header = replace(contents[0].header, plan="+".join(c.header.plan for c in contents))
    written = Journal.create(journal_path(Path(out)), header)
    for entry in pooled(one_after_another([each.measured for each in contents])):
        written.add(entry)
    return finish(device, written, Path(out))


def _check_alike(first: Path, one: Contents, second: Path, other: Contents) -> None:
    for name in ("device", "engine"):
        a, b = getattr(one.header, name), getattr(other.header, name)
        if a != b:
            raise InputError(f"cannot merge {first} and {second}: {name} is {a} and {b}")
    differing = changed_conditions(one.header.conditions, other.header.conditions)
    if differing:
        name, a, b = differing[0]
        raise InputError(
            f"cannot merge {first} and {second}: measured under unlike conditions, {name} was "
            f"{a} and {b}"
        )


def one_after_another(parts: Sequence[Sequence[Measurement]]) -> tuple[Measurement, ...]:
    """Measurements as if each calibration had begun when the one before it ended.

    The pace of the machine is one calibration's, not another's at the same moment.
    """
    found: list[Measurement] = []
    for part in parts:
        start = max((entry.at_s for entry in found), default=0.0)
        found += [
            replace(
                entry,
                at_s=start + entry.at_s,
                ends=tuple((start + at_s, count) for at_s, count in entry.ends),
            )
            for entry in part
        ]
    return tuple(found)


def pooled(measured: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Samples of the same task put together; references stay apart, each with a turn of its own."""
    found: dict[str, Measurement] = {}
    for entry in measured:
        own = entry
        if entry.kind == "reference":
            own = replace(entry, facts={**entry.facts, "turn": len(found)})
        old = found.get(own.task.key)
        found[own.task.key] = own if old is None else joined(old, own)
    return tuple(found.values())
