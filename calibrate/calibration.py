"""The whole calibration: measure, fit, validate, write a profile that forecasts use from then on."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calibrate.conditions import read_conditions, wait_passively_if_shared
from roofcast.calibrate.disturbance import warnings_of
from roofcast.calibrate.fit import Fitted, fit_kernels
from roofcast.calibrate.fit_links import fit_links
from roofcast.calibrate.journal import Header, Journal
from roofcast.calibrate.overheads import Runs, decode_runs, fit_overheads, with_kernel_errors
from roofcast.calibrate.plan import Plan, Target, make_plan
from roofcast.calibrate.progress import Listener, Progress, silent
from roofcast.calibrate.samples import STATE, Measurement, median
from roofcast.calibrate.shapes import Scale
from roofcast.calibrate.steadying import steadied, with_drift
from roofcast.calibrate.validation import Fitter, Judged, band, validate
from roofcast.hardware import profile_store
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.detect import attached
from roofcast.hardware.errors import InputError, MeasurementError, unknown
from roofcast.hardware.profile import HeldOut, Profile

if TYPE_CHECKING:
    from roofcast.calibrate.bench import Bench

ENGINE = "torch"
ENGINES = {"eager": ENGINE, "compiled": "torch-compiled", "graph": "torch-graph"}
"""The engine a profile names, by how its decode steps were issued."""

_CPU_BANDWIDTH_GUESS = 20e9
_FEWEST_RUNS = 6
_KERNELS_SHARE = 0.4  # of the time, at most


@dataclass(frozen=True)
class Calibration:
    """A finished calibration: the profile, where it and its raw samples lie, and what it is worth."""

    profile: Profile
    path: Path
    journal: Path
    judged: tuple[Judged, ...]

    @property
    def held_out(self) -> HeldOut | None:
        """Errors on shapes the fit never saw, else leaving one out in turn; None without runs."""
        return self.profile.held_out[0] if self.profile.held_out else None

    def as_json(self) -> dict[str, object]:
        """The result of `roofcast calibrate --json`."""
        errors = self.held_out
        return {
            "profile": str(self.path),
            "device": self.profile.device,
            "held_out": {
                "runs": errors.runs if errors else 0,
                "median_ape": errors.median_ape if errors else None,
                "p90_ape": errors.p90_ape if errors else None,
                "signed_median": errors.signed_median if errors else None,
            },
            "warnings": list(self.profile.warnings),
        }


def calibrate(
    device: str = "auto",
    *,
    quick: bool = False,
    mode: str = "eager",
    budget_s: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    listener: Listener = silent,
) -> Calibration:
    """Measure the attached device, fit a profile, judge it on runs it hasn't seen, and write it.

    `mode` is how steps are issued: eager, compiled (torch.compile) or graph (CUDA graphs). After
    `budget_s` seconds (the plan's own if None) no measurement starts. `out` is the profile's file,
    by default where forecasts look for this device; raw samples lie beside it. `resume` goes on with
    an interrupted calibration. InputError where torch is missing, nothing can be written, or the
    calibration is interrupted; MeasurementError where too little was measured.
    """
    require_torch()
    wait_passively_if_shared()
    from roofcast.calibrate.bench import (
        main_dtype,
        make_bench,
        rank_count,
        torch_device,
        total_memory,
    )
    from roofcast.calibrate.modes import require_mode

    if mode not in ENGINES:
        raise unknown("mode", mode, ENGINES)
    accelerator = attached(device)
    path = Path(out) if out else profile_store.path_for(accelerator.id, ENGINES[mode])
    place = torch_device(accelerator)
    require_mode(mode, place)
    target = Target(
        accelerator,
        main_dtype(place),
        total_memory(accelerator, place),
        accelerator.memory_bandwidth_bytes_per_s or _CPU_BANDWIDTH_GUESS,
        rank_count(place),
    )
    plan = make_plan(target, quick=quick, mode=mode)
    plan = replace(plan, budget_s=budget_s or plan.budget_s)
    header = Header(
        device=accelerator.id,
        engine=ENGINES[mode],
        plan=plan.identity,
        started=_now(),
        scale=target.scale,
        dtype=target.dtype,
        conditions=read_conditions(place),
    )
    journal = open_journal(path, header, resume=resume)
    listener(Progress("prepare", 0, 1, "filling the cold buffer", 0.0))
    try:
        _measure(make_bench(accelerator), plan, target.scale, journal, listener)
    except KeyboardInterrupt:
        raise InputError(
            f"interrupted: {len(journal)} measurements are kept in {journal.path}; "
            "the same command with --resume goes on from there"
        ) from None
    return finish(accelerator, journal, path)


def require_torch() -> None:
    """InputError where torch is missing, with the command that brings it."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "calibration runs a real decoder and needs torch: pip install 'roofcast[calibrate]'"
        )


def journal_path(profile: Path) -> Path:
    """Where the raw samples of a profile lie."""
    return profile.with_suffix(".samples.jsonl")


def open_journal(profile: Path, header: Header, *, resume: bool) -> Journal:
    """A journal beside the profile; an older one is kept under another name unless resumed."""
    path = journal_path(profile)
    if resume:
        return Journal.resume(path, header)
    if path.exists():
        try:
            path.replace(path.with_suffix(".previous.jsonl"))
        except OSError as error:
            raise InputError(f"cannot replace {path}: {error.strerror or error}") from None
    return Journal.create(path, header)


def _measure(bench: Bench, plan: Plan, scale: Scale, journal: Journal, listener: Listener) -> None:
    """Kernels, decode runs, ranks, kernels once more; then what others disturbed, if time is left.

    A machine drifts over minutes. Kernels are visited before and after the decode runs, so that on
    average both were measured at the same time, and what the steps add to kernels isn't the drift.
    """
    from roofcast.calibrate.measuring import Recorder
    from roofcast.calibrate.runs import record_runs, run_timer

    recorder = Recorder(bench, journal, listener, deadline_s=_KERNELS_SHARE * plan.budget_s)
    kernel_timer = recorder.kernel_timer(plan.kernel_effort)
    recorder.record("kernels", plan.kernels, kernel_timer)
    recorder.deadline_s = plan.budget_s - min(
        recorder.elapsed_s, _KERNELS_SHARE * plan.budget_s / 2
    )
    timer = run_timer(recorder, plan, scale)
    record_runs(recorder, plan, timer, at_least=_FEWEST_RUNS)
    recorder.deadline_s = plan.budget_s
    if plan.ranks:
        from roofcast.calibrate.collectives import record_ranks

        record_ranks(recorder, plan.ranks, plan.kernel_effort, scale)
    recorder.record("kernels once more", plan.kernels, kernel_timer, visits=2)
    recorder.look_again("kernels again", plan.kernels, kernel_timer)
    recorder.look_again("decode runs again", plan.runs, timer)


def finish(device: Accelerator, journal: Journal, path: Path) -> Calibration:
    """Fit, validate and write, from the raw samples of a journal alone."""
    measured, source = steadied(tuple(journal)), source_of(journal)
    runs = decode_runs(measured, "large" if journal.header.scale == "large" else "small")
    bare = fit_kernels(device, journal.header.engine, measured, source)
    kernels = fit_links(bare, measured, source)

    def fitter(known: Fitted, seen: Sequence[Runs]) -> Fitted:
        return fit_overheads(known, seen, source)

    return conclude(kernels, runs, fitter, journal, path)


def source_of(journal: Journal) -> str:
    """What the parameters of a profile name as their source."""
    return f"calibration of {journal.header.started}"


def conclude(
    kernels: Fitted, runs: Sequence[Runs], fitter: Fitter, journal: Journal, path: Path
) -> Calibration:
    """Judge a fitter on decode runs, fit it to those that may be seen, write the profile."""
    count = sum(entry.size for entry in runs)
    if count < _FEWEST_RUNS:
        raise MeasurementError(
            f"only {count} decode runs were measured, too few to fit; "
            "calibrate without --quick, or free memory and time"
        )
    judged = validate(kernels, runs, fitter)
    seen = [entry for entry in runs if not entry.held_out] or list(runs)
    fitted = with_kernel_errors(fitter(kernels, seen), seen, fitter)
    fitted = with_drift(fitted, tuple(journal))
    profile = _profile(fitted, runs, tuple(journal), judged, journal.header)
    return Calibration(profile, profile_store.write(profile, path), journal.path, judged)


def _profile(
    fitted: Fitted,
    runs: Sequence[Runs],
    measured: Sequence[Measurement],
    judged: Sequence[Judged],
    header: Header,
) -> Profile:
    batches = [float(b) for entry in runs for b in entry.work.workload.batch]
    contexts = [float(c) for entry in runs for c in entry.context]
    return replace(
        fitted.profile,
        valid_range={
            "batch": (min(batches), max(batches)),
            "context": (min(contexts), max(contexts)),
        },
        conditions={**header.conditions, **under_load(measured)},
        held_out=tuple(entry.summary() for entry in judged),
        band=band(judged),
        warnings=warnings_of(measured, header.conditions) + fitted.warnings,
        created=header.started,
    )


def under_load(measured: Sequence[Measurement]) -> dict[str, float]:
    """Medians of what the busy device said of itself."""
    found: dict[str, list[float]] = {}
    for entry in measured:
        if entry.kind == STATE:
            for name, value in entry.facts.items():
                if name != "turn" and isinstance(value, float):
                    found.setdefault(f"{name}_under_load", []).append(value)
    return {name: median(values) for name, values in found.items()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
