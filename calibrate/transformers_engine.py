"""A second engine: transformers' own `generate` on a config the user names.

The device's kernels are known from its calibration under torch; `generate` runs others around the same
products (unpacked weights, repeated KV heads, a Python stack of its own), so its runs fit the host's
costs and two scales, of matrix products and of attention. One model only: held out is each context.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roofcast.calibrate.calibration import Calibration, conclude, open_journal, source_of
from roofcast.calibrate.clock import Effort, Timing
from roofcast.calibrate.fit import Fitted, as_parameters, with_values
from roofcast.calibrate.fitting import Sample, Unknown, fit
from roofcast.calibrate.journal import Header, Journal
from roofcast.calibrate.overheads import Runs, forecast_s
from roofcast.calibrate.progress import Listener, silent
from roofcast.calibrate.samples import Measurement, Task
from roofcast.hardware import profile_store
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.detect import attached
from roofcast.hardware.errors import InputError
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.config import read_json
from roofcast.simulator.models import from_fields
from roofcast.simulator.passes import Pass
from roofcast.simulator.quantization import requantise
from roofcast.simulator.workload import Array, Workload

if TYPE_CHECKING:
    import torch

    from roofcast.calibrate.bench import Bench

ENGINE = "transformers"
_NEW_TOKENS = 12
_SKIPPED = 2  # the prefill, and the first step after it
_LONGEST_PROMPTS = 4096  # tokens of all prompts together: prefill is not what is measured
_HOST = ("host.step_s", "host.sequence_s")
_EFFORT = Effort(budget_s=5.0)


@dataclass(frozen=True)
class Subject:
    """The model that `generate` runs: the config's fields, and what they mean to a forecast."""

    name: str
    fields: Mapping[str, object]
    architecture: Architecture

    @classmethod
    def read(cls, config: str | Path, dtype: str) -> Subject:
        """From a config.json or a folder that holds one."""
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        fields = read_json(path)
        name = path.parent.name if path.name == "config.json" else path.stem
        return cls(name, fields, requantise(from_fields(fields, name=name), dtype))


def calibrate_transformers(
    config: str | Path,
    device: str = "auto",
    *,
    quick: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    listener: Listener = silent,
) -> Calibration:
    """Measure `generate` of the model in `config` and write a profile for the engine transformers.

    InputError where transformers or a torch calibration of this device is missing.
    """
    _require_transformers()
    from roofcast.calibrate.bench import main_dtype, make_bench, torch_device
    from roofcast.calibrate.conditions import read_conditions

    accelerator = attached(device)
    place = torch_device(accelerator)
    dtype = main_dtype(place)
    subject = Subject.read(config, dtype)
    kernels = known_kernels(accelerator)
    path = Path(out) if out else profile_store.path_for(accelerator.id, ENGINE)
    tasks = generate_tasks(subject, dtype, quick=quick)
    header = Header(
        device=accelerator.id,
        engine=ENGINE,
        plan=f"{subject.name}-{dtype}-{len(tasks)}",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        dtype=dtype,
        conditions={**read_conditions(place), "transformers": _version()},
    )
    journal = open_journal(path, header, resume=resume)
    try:
        _measure(make_bench(accelerator), subject, tasks, journal, listener)
    except KeyboardInterrupt:
        raise InputError(
            f"interrupted: {len(journal)} measurements are kept in {journal.path}; "
            "the same command with --resume goes on from there"
        ) from None
    return finish(subject, kernels, journal, path)


def _require_transformers() -> None:
    for name, extra in (("torch", "calibrate"), ("transformers", "transformers")):
        if importlib.util.find_spec(name) is None:
            raise InputError(f"this engine needs {name}: pip install 'roofcast[{extra}]'")


def _version() -> str:
    import transformers

    return str(transformers.__version__)


def known_kernels(device: Accelerator) -> Fitted:
    """The kernels' part of the device's torch profile; InputError where it was never calibrated."""
    found = profile_store.choose(device.id, "torch")
    if found is None:
        raise InputError(
            f"{device.id} has no calibration under torch, which knows its kernels: "
            "run `roofcast calibrate` first"
        )
    kernels = {n: p for n, p in found.parameters.items() if not n.startswith("host.")}
    profile = replace(
        found, name=f"{device.id} under {ENGINE}", engine=ENGINE, parameters=kernels, held_out=(),
        band=None, warnings=(),
    )  # fmt: skip
    return Fitted(device, profile, {})


def generate_tasks(subject: Subject, dtype: str, *, quick: bool, seed: int = 0) -> list[Task]:
    """Batches and contexts, in random order; long prompts only at small batches."""
    batches: tuple[int, ...] = (1, 2, 4, 8) if quick else (1, 2, 4, 8, 16, 32)
    contexts: tuple[int, ...] = (32, 128, 512) if quick else (32, 128, 256, 512, 1024, 2048)
    tasks = [
        Task("generate", {
            "model": subject.name, "batch": batch, "context": context, "dtype": dtype,
        })
        for batch in batches
        for context in contexts
        if batch * context <= _LONGEST_PROMPTS
    ]  # fmt: skip
    random.Random(seed).shuffle(tasks)
    return tasks


# ---- measuring ----------------------------------------------------------------------------------


def _measure(
    bench: Bench, subject: Subject, tasks: Sequence[Task], journal: Journal, listener: Listener
) -> None:
    from roofcast.calibrate.measuring import Recorder

    model = make_model(subject, bench.device, bench.dtype)
    recorder = Recorder(bench, journal, listener, deadline_s=870.0)
    recorder.record("generate", tasks, partial(time_generate, model))


def make_model(subject: Subject, device: torch.device, dtype: str) -> Any:
    """The transformers model with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from roofcast.calibrate.decoder import DTYPES

    fields = {name: value for name, value in subject.fields.items() if name != "model_type"}
    settings = AutoConfig.for_model(str(subject.fields["model_type"]), **fields)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(settings, dtype=DTYPES[dtype])  # type: ignore[no-untyped-call]
    return model.eval()


def time_generate(model: Any, task: Task) -> Timing:
    """Seconds of each token of replies: time between two tokens, prefill and first step left out."""
    import torch

    shape = (task.whole("batch"), task.whole("context"))
    prompt = torch.randint(1, model.config.vocab_size, shape, device=model.device)
    samples: list[float] = []
    while len(samples) < _EFFORT.least or sum(samples) < _EFFORT.budget_s / 3:
        stamps = Stamps(model.device)
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=_NEW_TOKENS,
            min_new_tokens=_NEW_TOKENS,
            do_sample=False,
            logits_processor=[stamps],
            pad_token_id=0,
        )
        samples += stamps.laps()[_SKIPPED - 1 :]
        if len(samples) >= _EFFORT.most:
            break
    return Timing(tuple(samples), steady=True)


class Stamps:
    """Notes the time whenever `generate` has the logits of a new token, the device's work done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.times: list[float] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """A logits processor that changes nothing."""
        import time

        import torch

        del input_ids
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        return scores

    def laps(self) -> list[float]:
        """Seconds between successive tokens."""
        return [float(lap) for lap in np.diff(self.times)]


# ---- fitting ------------------------------------------------------------------------------------


def finish(subject: Subject, kernels: Fitted, journal: Journal, path: Path) -> Calibration:
    """Fit and judge the runs of a journal, write the profile."""
    runs = generate_runs(subject, tuple(journal))
    return conclude(kernels, runs, partial(_fitted, source_of(journal)), journal, path)


def generate_runs(subject: Subject, measured: Sequence[Measurement]) -> tuple[Runs, ...]:
    """All runs of the model as one; a context counts the tokens there were on average."""
    usable = [entry for entry in measured if entry.kind == "generate" and entry.samples_s]
    if not usable:
        return ()
    grown = (_SKIPPED + _NEW_TOKENS) // 2
    dtype = usable[0].task.text("dtype")
    work = Pass(
        subject.architecture,
        Workload.decode(
            [entry.task.whole("batch") for entry in usable],
            [entry.task.whole("context") + grown for entry in usable],
        ),
        kv_dtype=dtype,
        activation_dtype=dtype,
        engine=ENGINE,
    )
    return (Runs(subject.name, False, work, np.array([entry.median_s for entry in usable])),)


def _fitted(source: str, kernels: Fitted, runs: Sequence[Runs]) -> Fitted:
    unknowns = [
        Unknown("host.step_s", 1e-3, 0.0, 1.0),
        Unknown("host.sequence_s", 1e-5, 0.0, 0.05),
        Unknown("gemm.scale", 1.2, 0.3, 10.0, prior_sd=0.5),
        Unknown("attention.scale", 1.5, 0.1, 100.0, prior_sd=1.5),
    ]

    def model(values: Mapping[str, float]) -> Array:
        profile = with_values(kernels.profile, values)
        return np.concatenate([forecast_s(entry, kernels.device, profile) for entry in runs])

    sample = Sample(np.concatenate([entry.measured_s for entry in runs]))
    found = fit(model, unknowns, sample)
    return kernels.extended(ENGINE, found, as_parameters(found, source))
