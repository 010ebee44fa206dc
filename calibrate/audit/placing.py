"""From a record to what ran: a set-up that can be forecast, and what had to be assumed for it.

What a flag or a sidecar says counts before what the file says. Model and device are never assumed.
Everything else that nobody stated is taken in its plainest form, and said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roofcast.calibrate.benchmark_files.conditions import Conditions, sidecar
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.serving_points.conventions import EngineName, engine_of
from roofcast.calibrate.serving_points.points import Point
from roofcast.calibrate.serving_points.resolve import Case, Profiles, Resolver
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError, UnknownNameError
from roofcast.hardware.profile import Profile
from roofcast.simulator.api import Setup, find_device, find_profile, setup
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.formats import element_name
from roofcast.simulator.models import load
from roofcast.simulator.quantization import requantise
from roofcast.simulator.workload import Parallelism

_RANKS = {"tp": "TP", "pp": "PP", "ep": "EP", "dp": "DP"}
_FILLED = ("batch", "input_tokens", "output_tokens")
_OPTIONS = {"batch": "--batch", "input_tokens": "--input", "output_tokens": "--output"}


@dataclass(frozen=True, slots=True)
class Placed:
    """A record with its set-up. `replicas` is how many copies of it decoded, None where unknown.

    `assumed` says what nobody stated, `contradicted` where file and flags differ; `cache_stated` is
    whether anyone stated the dtype of the cache.
    """

    record: Record
    setup: Setup
    replicas: float | None = 1.0
    assumed: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    cache_stated: bool = False


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A record that can't be audited, and why."""

    record: Record
    reason: str


@dataclass
class Placer:
    """Places records; models and set-ups are made once.

    `given` is what the user said of all of them; `profile` a profile's file or "ideal".
    """

    given: Conditions
    profile: str | Path | Profile | None = None
    _setups: dict[Conditions, tuple[Setup, tuple[str, ...]]] = field(default_factory=dict)
    _resolvers: dict[Path, Resolver] = field(default_factory=dict)
    _sidecars: dict[str, Conditions] = field(default_factory=dict)

    def all(self, records: Iterable[Record]) -> list[Placed | Unplaced]:
        """Every record, in order."""
        return [self.one(record) for record in records]

    def one(self, record: Record) -> Placed | Unplaced:
        """A record with its set-up.

        A row of a table of points that can't be placed comes back with the reason. For any other
        file what is missing is an InputError that says how to give it.
        """
        if record.point is not None and self.given.model is None:
            return self._row(record, record.point)
        if record.file not in self._sidecars:
            self._sidecars[record.file] = sidecar(Path(record.file))
        said = self.given.over(self._sidecars[record.file])
        filled = _filled(record, said)
        known = replace(said.over(record.stated), **dict.fromkeys(_FILLED))
        made, assumed = self._setup(replace(known, draft_tokens=None), record, said)
        differing = tuple(_contradictions(record.stated, said))
        stated = known.kv_dtype is not None
        return Placed(filled, made, _copies(record, made), assumed, differing, stated)

    def _setup(
        self, known: Conditions, record: Record, said: Conditions
    ) -> tuple[Setup, tuple[str, ...]]:
        _require(said, record)
        # Names of models and devices in files are free text: only what the user said counts.
        known = replace(known, model=said.model, device=said.device)
        if known not in self._setups:
            self._setups[known] = _build(known, said, self.profile)
        return self._setups[known]

    def _row(self, record: Record, point: Point) -> Placed | Unplaced:
        folder = Path(record.file).parent
        if folder not in self._resolvers:
            self._resolvers[folder] = Resolver(
                configs=(folder / "configs", folder), profiles=_profiles(self.profile)
            )
        # Only the set-up is wanted: a load whose batch isn't known has one all the same.
        plain = replace(
            point,
            serving_mode="aggregated",
            load_mode="static_batch",
            concurrency=point.concurrency or 1.0,
            osl=point.osl or 1.0,
        )
        case = self._resolvers[folder].one(plain)
        if not isinstance(case, Case):
            return Unplaced(record, case.reason)
        return Placed(
            record, case.setup, _copies(record, case.setup), cache_stated=bool(point.kv_dtype)
        )


def _copies(record: Record, made: Setup) -> float | None:
    """Replicas that decoded; a disaggregated run doesn't always say."""
    if record.replicas is not None:
        return record.replicas.value
    if "disaggregated" in record.flags:
        return None
    devices = made.parallelism.devices
    gpus = record.point.gpus if record.point is not None else None
    copies = (gpus or devices) / devices
    return copies if copies > 1 and copies == int(copies) else 1.0


def _profiles(wanted: str | Path | Profile | None) -> Profiles:
    """The profile of a device and engine, a relative's where nobody measured that engine."""

    def choose(device: Accelerator, named: EngineName) -> Profile:
        return _profile(device, named.engine, wanted)[0]

    return choose


def _profile(
    device: Accelerator, engine: str | None, wanted: str | Path | Profile | None
) -> tuple[Profile, bool]:
    """The profile under an engine that a file names, else any of the device; whether it is that."""
    if engine is None or wanted is not None:
        return find_profile(device, None, wanted), True
    try:
        return find_profile(device, engine, None), True
    except UnknownNameError:
        return find_profile(device, None, None), False


def _require(said: Conditions, record: Record) -> None:
    missing = [name for name in ("model", "device") if getattr(said, name) is None]
    if not missing:
        return
    known = [f"{name} {getattr(record.stated, name)!r}" for name in missing]
    hint = [words for words in known if not words.endswith("None")]
    options = " and ".join(f"--{name}" for name in missing)
    named = f" (the file names {' and '.join(hint)})" if hint else ""
    raise InputError(f"{record.name}: give {options}{named}, or a .conditions.toml beside the file")


def _build(
    known: Conditions, said: Conditions, profile: str | Path | Profile | None
) -> tuple[Setup, tuple[str, ...]]:
    """A set-up, and what was assumed for it."""
    assert known.model is not None, "required before"
    assert known.device is not None, "required before"
    assumed: list[str] = []
    device = find_device(known.device)
    architecture = _stored(load(known.model), known, said, assumed)
    # A benchmark that ran is audited even beyond the context its config allows.
    made = setup(
        replace(architecture, max_context=None),
        device,
        profile=_measured(device, known, said, profile, assumed),
        parallelism=_parallelism(known, said, assumed),
        kv_dtype=_cache(known, said, assumed),
    )
    if known.kv_dtype is None:
        assumed.append(f"{made.kv_dtype} cache, the model's own (--kv-dtype)")
    return made, tuple(assumed)


def _measured(
    device: Accelerator,
    known: Conditions,
    said: Conditions,
    wanted: str | Path | Profile | None,
    assumed: list[str],
) -> Profile:
    """The profile: of the engine the user names, else of the one the file names, else any."""
    if said.engine is not None:
        return find_profile(device, said.engine, wanted)
    named = _stand_in(known.engine)
    found, exact = _profile(device, named, wanted)
    if wanted is None and (named is None or not exact):
        assumed.append(f"the engine is taken as {found.engine} (--engine)")
    return found


def _stand_in(engine: str | None) -> str | None:
    """The engine whose profile stands for the one a file names; None for an unknown one."""
    if engine is None:
        return None
    try:
        return engine_of(Point(id="", gpu="", engine=engine, load_mode="static_batch")).engine
    except UnknownNameError:
        return None


def _parallelism(known: Conditions, said: Conditions, assumed: list[str]) -> Parallelism:
    sizes = {name: getattr(known, name) for name in _RANKS}
    if sizes["tp"] is None:
        assumed.append("one device (--tp)")
    for name, size in sizes.items():
        if size is not None and size > 1 and getattr(said, name) is None:
            assumed.append(f"{_RANKS[name]} {size}, as the file says")
    return Parallelism(*(size or 1 for size in sizes.values()))


def _stored(
    architecture: Architecture, known: Conditions, said: Conditions, assumed: list[str]
) -> Architecture:
    """The weights as the user says, else as the file says where it is understood, else as they are."""
    if said.weight_dtype is not None:
        return requantise(architecture, said.weight_dtype)
    if known.weight_dtype is not None:
        try:
            made = requantise(architecture, known.weight_dtype)
        except UnknownNameError:
            assumed.append(f"the file's weights {known.weight_dtype!r} are of no known format")
        else:
            assumed.append(f"{known.weight_dtype} weights, as the file says")
            return made
    assumed.append("weights as the model's config stores them (--weight-dtype)")
    return architecture


def _cache(known: Conditions, said: Conditions, assumed: list[str]) -> str | None:
    if said.kv_dtype is not None or known.kv_dtype is None:
        return said.kv_dtype
    try:
        name = element_name(known.kv_dtype)
    except UnknownNameError:
        assumed.append(f"the file's cache {known.kv_dtype!r} is of no known type")
        return None
    assumed.append(f"{name} cache, as the file says")
    return name


def _filled(record: Record, said: Conditions) -> Record:
    """The record with what its file lacks and the user gave."""
    given: dict[str, Any] = {
        name: Quantity(getattr(said, name), f"given ({_OPTIONS[name]})")
        for name in _FILLED
        if getattr(said, name) is not None and getattr(record, name) is None
    }
    return replace(record, **given) if given else record


def _contradictions(stated: Conditions, said: Conditions) -> Iterable[str]:
    """Where the user says one thing and the file another; free text is not compared."""
    for name in (*_RANKS, "weight_dtype", "kv_dtype"):
        mine, theirs = getattr(said, name), getattr(stated, name)
        if mine is not None and theirs is not None and str(mine).lower() != str(theirs).lower():
            yield f"{_RANKS.get(name, name)}: the file says {theirs}, you say {mine}"
