"""What `roofcast quickstart` forecasts and draws: this machine, and GPUs one might buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roofcast.calibrate.calibration import Calibration
from roofcast.hardware.catalog import find
from roofcast.reports import figure_data, units, words
from roofcast.simulator.api import Setup, find_device, setup
from roofcast.simulator.insight import Batching, batching, smallest_tensor
from roofcast.simulator.models import load
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.quantization import requantise
from roofcast.simulator.workload import Parallelism

SMALL_MODEL = "smollm2-360m"
MODELS = ("llama-3.1-8b", "llama-3.1-70b")
DEVICES = ("h100-sxm", "h200-sxm", "b200-sxm", "mi300x")
ENGINE = "vllm"
"""One engine for all GPUs: profiles of different engines don't compare devices."""
CONTEXT = 2048
ROOM = (32, 8192)
"""Sequences and tokens that the smallest tensor parallelism must hold in memory."""

_BATCHES = 2.0 ** np.arange(0, 10)
_LOCAL_CONTEXTS = (256, 1024, 4096)


@dataclass(frozen=True)
class Case:
    """One model on one device, forecast at batch 1 and how far batching pays."""

    where: Setup
    single: Forecast
    batching: Batching

    @property
    def verdict(self) -> str:
        """What holds decode back, and how far batching pays, in one sentence."""
        model, device = self.where.architecture.name, self.where.device
        name = device.name if self.single.devices == 1 else f"{self.single.devices} x {device.name}"
        bound = words.bound_at(self.single, 0)
        reach = f" at {words.sustained(self.single, 0)}" if bound == "memory-bound" else ""
        how_far = words.batching(self.batching)
        return f"Decode of {model} at batch 1 on {name} is {bound}{reach}; {how_far}."


def local_case(calibration: Calibration, device: str) -> Case:
    """The small model on the machine that was measured, stored and computed in the dtype measured."""
    dtype = calibration.judged[0].runs[0].work.activation_dtype
    model = replace(requantise(load(SMALL_MODEL), dtype), dtype=dtype)
    where = setup(model, find_device(device), profile=calibration.profile, kv_dtype=dtype)
    return _case(where)


def gpu_cases() -> list[Case]:
    """Every model on every GPU, spread over as few devices as hold it with room for a batch."""
    cases = []
    for model in MODELS:
        for device in DEVICES:
            alone = setup(load(model), find(device), engine=ENGINE)
            batch, context = ROOM
            ranks = smallest_tensor(alone, context, batch)
            cases.append(_case(replace(alone, parallelism=Parallelism(tensor=ranks))))
    return cases


def _case(where: Setup) -> Case:
    single = where.decode(1, CONTEXT)
    return Case(where, single, batching(single))


def draw(calibration: Calibration, local: Case, gpus: Sequence[Case], folder: Path) -> list[Path]:
    """All figures into one folder; returns the PNG and SVG files in the order they are best read."""
    from roofcast.reports.figures import pages

    written = pages.accuracy_page(calibration, folder / "1-accuracy")
    written += _draw_local(local.where, folder)
    h100 = next(case.where for case in gpus)
    written += pages.roofline_page(
        h100.decode(np.array([1, 16, 128.0]), CONTEXT), folder / "5-roofline-gpu"
    )
    written += pages.comparison_page(
        "Throughput on GPUs",
        f"context {units.tokens(CONTEXT)}, {_profiles(gpus)}; {_bands(gpus)}",
        [(model, _lines(gpus, model)) for model in MODELS],
        folder / "6-throughput-gpus",
    )
    written += _draw_breakdown(gpus, folder / "7-breakdown-gpus")
    return written


def _draw_local(where: Setup, folder: Path) -> list[Path]:
    from roofcast.reports.figures import pages

    batches = _BATCHES[:8]
    written = pages.roofline_page(where.decode(np.array([1, 8, 64.0]), 1024), folder / "2-roofline")
    by_batch = [where.decode(batches, context) for context in _LOCAL_CONTEXTS]
    written += pages.throughput_page(by_batch, folder / "3-throughput")
    longest = where.architecture.max_context or 8192
    contexts = 2.0 ** np.arange(7, np.floor(np.log2(longest - 1)) + 1)
    by_context = [where.decode(batch, contexts) for batch in (1, 8, 32)]
    return written + pages.latency_page(by_context, folder / "4-latency")


def _draw_breakdown(gpus: Sequence[Case], stem: Path) -> list[Path]:
    from roofcast.reports.figures import pages

    bars: list[figure_data.Bar] = []
    for case in (case for case in gpus if case.where.architecture.name == MODELS[0]):
        forecast = case.where.decode(np.array([1.0, 64.0]), CONTEXT)
        bars += figure_data.breakdown(forecast, [f"{_short(case)}, batch {b}" for b in (1, 64)])
    subtitle = f"{MODELS[0]} at context {units.tokens(CONTEXT)}, {_profiles(gpus)}"
    return pages.breakdown_page("Where a decode step's time goes", subtitle, bars, stem)


def _lines(gpus: Sequence[Case], model: str) -> list[figure_data.Line]:
    """A curve for each GPU, per device, without bands: four over each other would hide the curves."""
    lines = []
    for case in gpus:
        if case.where.architecture.name == model:
            forecast = case.where.decode(_BATCHES, CONTEXT)
            line = figure_data.tokens_by_batch(forecast, _short(case))
            plain = replace(line, low=None, high=None)
            lines.append(figure_data.per_device(plain, case.single.devices))
    return lines


def _short(case: Case) -> str:
    name = case.where.device.id.split("-")[0].upper()
    return name if case.single.devices == 1 else f"{case.single.devices} x {name}"


def _profiles(cases: Sequence[Case]) -> str:
    names = dict.fromkeys(case.where.profile.engine for case in cases)
    return f"profiles: {', '.join(names)}"


def _bands(cases: Sequence[Case]) -> str:
    """The 80 % bands of step times, GPUs of equal bands together."""
    groups: dict[str, list[str]] = {}
    for case in cases:
        name = case.where.device.id.split("-")[0].upper()
        said = words.band(case.where.profile.band).removeprefix("80 % band ")
        groups.setdefault(said, []).append(name)
    each = [f"{', '.join(dict.fromkeys(names))} {said}" for said, names in groups.items()]
    return f"80 % bands: {'; '.join(each)}"
