"""What `roofcast report` reads beside the model: a plan's scenario, results to audit, a calibration."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import CapacityError, InputError, RoofcastError
from roofcast.hardware.profile import Profile
from roofcast.simulator.api import Setup

if TYPE_CHECKING:
    from roofcast.calibrate.audit.audit import Audited
    from roofcast.calibrate.audit.before_after import Gain
    from roofcast.calibrate.benchmark_files.conditions import Conditions
    from roofcast.calibrate.calibration import Calibration
    from roofcast.reports.sections.asked import Asked
    from roofcast.simulator.planning.plan import Plan
    from roofcast.simulator.planning.prices import Price


@dataclass(frozen=True)
class Options:
    """The options that ask for sections, as given."""

    plan: Path | None = None
    audit: Sequence[Path] = ()
    before: Sequence[Path] = ()
    change: str | None = None
    calibration: Path | None = None
    price: Sequence[str] = ()
    kwh: float = 0.12


def gather(given: Options, model: str, where: Sequence[Setup], stated: Mapping[str, Any]) -> Asked:
    """Everything that was asked for; `stated` are the layout and formats that the user typed.

    InputError for whatever can't be read, or is asked for in half.
    """
    from roofcast.reports.sections.asked import Asked
    from roofcast.simulator.models import source
    from roofcast.simulator.planning.prices import Power

    _check(given)
    told = _conditions(model, where, stated)
    calibration, gap = calibrated(given.calibration) if given.calibration else (None, "")
    return Asked(
        plan=None if given.plan is None else searched(given.plan),
        audited=_audited(given, told) if given.audit and given.change is None else (),
        gains=_gains(given, told) if given.change is not None else (),
        calibration=calibration,
        calibration_gap=gap,
        prices=_prices(given.price, where),
        power=Power(usd_per_kwh=given.kwh),
        model_source=source(model),
    )


def _check(given: Options) -> None:
    if given.change is None and given.before:
        raise InputError("--before needs --change: say what was changed")
    if given.change is not None and not (given.before and given.audit):
        raise InputError("--change needs the runs --before and, as --audit, those after it")


def _conditions(model: str, where: Sequence[Setup], stated: Mapping[str, Any]) -> Conditions:
    """What the user said of the runs; one of several devices is named by the files, or by a sidecar."""
    from roofcast.calibrate.benchmark_files.conditions import Conditions

    device = where[0].device.id if len(where) == 1 else None
    known = {name: value for name, value in stated.items() if value is not None}
    if known.get("engine") == "ideal":
        del known["engine"]
    return Conditions(model=model, device=device, **known)


def _audited(given: Options, told: Conditions) -> tuple[Audited, ...]:
    from roofcast.calibrate.audit.audit import audit
    from roofcast.calibrate.benchmark_files.reader import read_all

    return audit(read_all(given.audit), told)


def _gains(given: Options, told: Conditions) -> tuple[Gain, ...]:
    from roofcast.calibrate.audit.before_after import compare
    from roofcast.calibrate.audit.changes import parse_change
    from roofcast.calibrate.benchmark_files.reader import read_all

    assert given.change is not None, "checked before"
    return compare(read_all(given.before), read_all(given.audit), parse_change(given.change), told)


def searched(path: Path) -> Plan:
    """The plan of a scenario file; CapacityError where nothing meets its objectives."""
    from roofcast.reports import plan_text
    from roofcast.simulator.planning import scenario
    from roofcast.simulator.planning.plan import plan

    found = plan(scenario.asked(scenario.read(path), path.parent))
    if not found.deployments:
        raise CapacityError(plan_text.unreachable(found))
    return found


def calibrated(path: Path) -> tuple[Calibration | Profile, str]:
    """A calibration from a profile's file and the raw samples beside it; else the profile, and why.

    The fit is run again on a copy of the samples, so that each run has its own forecast.
    """
    from roofcast.calibrate import journal
    from roofcast.calibrate.calibration import finish, journal_path
    from roofcast.hardware.profile_store import read

    profile, samples = read(path), journal_path(path)
    if not samples.is_file():
        return profile, f"no raw samples lie beside {path.name}"
    try:
        device = _device(profile.device)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / samples.name
            shutil.copyfile(samples, copy)
            opened = journal.Journal.resume(copy, journal.read(copy).header)
            return finish(device, opened, Path(folder) / path.name), ""
    except RoofcastError as error:  # samples of another version, or of a device that isn't here
        return profile, f"its raw samples can't be fitted again: {error}"


def _device(name: str) -> Accelerator:
    """A device of the catalogue, or the attached one where it is that; else an UnknownNameError."""
    from roofcast.hardware.catalog import find
    from roofcast.hardware.detect import attached

    try:
        return find(name)
    except InputError:
        here = attached("auto")
        if here.id == name:
            return here
        raise


def _prices(texts: Sequence[str], where: Sequence[Setup]) -> dict[str, Price]:
    from roofcast.hardware.catalog import find
    from roofcast.simulator.planning.prices import parse

    found, known = {}, {each.device.id for each in where}
    for text in texts:
        name, price = parse(text)
        device = find(name).id
        if device not in known:
            raise InputError(f"--price names {name}, which is not among the devices of the report")
        found[device] = price
    return found
