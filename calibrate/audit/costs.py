"""What each placed point should cost: floor, forecast, parts; a set-up's points in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from roofcast.calibrate.audit.floors import floor, kindest
from roofcast.calibrate.audit.placing import Placed, Unplaced
from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.record import Record
from roofcast.hardware.errors import InputError, UnknownSpecError
from roofcast.simulator.api import Setup
from roofcast.simulator.insight import largest_batch
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.workload import Array

PARTS = ("weights", "kv_cache", "activations", "compute", "launch_and_host", "collectives")
"""Parts of a forecast step; a collective's latency counts as collectives, not as launch."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One decode step of `batch` sequences of one replica at `context`, and the prompts around it.

    Where the batch isn't known (`counted` False) it is that of one sequence.

    `floor_s` and `step_s` are the physical floor and the forecast (`low_s` to `high_s` its interval,
    NaN where there is none); `parts_s` sums to `step_s`. `bytes_s` and `flops_s` are the step's bytes
    and FLOPs at full bandwidth and peak: over a time they give MBU and MFU. `prompt_s` is the prefill
    of one prompt, `together_s` that of the whole batch in one pass. `least` is the floor where all
    that nobody stated is as kind as can be. `resident` is the largest batch that memory holds at full
    length as engines plan it, None where the memory's size isn't known.
    """

    batch: float
    context: float
    counted: bool
    floor_s: float
    step_s: float
    low_s: float
    high_s: float
    extrapolates: bool
    parts_s: Mapping[str, float]
    bytes_s: float
    flops_s: float
    launches: float
    prompt_s: float
    together_s: float
    resident: int | None
    least: Least


@dataclass(frozen=True, slots=True)
class Least:
    """What no run of a point can undercut, whatever nobody stated about it.

    Seconds of a step, of its FLOPs and its cache alone; of a prompt, of the whole batch's prompts and
    of the FLOPs of one. `resident` is the largest batch in memory with nothing reserved.
    """

    step_s: float
    flops_s: float
    kv_s: float
    prompt_s: float
    together_s: float
    prompt_flops_s: float
    resident: float


def costs(placed: Sequence[Placed]) -> list[Cost | Unplaced]:
    """The cost of every point, in order; the reason where it has none.

    Raises the InputError where a point of a benchmark's file needs a number that a spec lacks; a row
    of a table of points gets it as its reason.
    """
    found: list[Cost | Unplaced] = [Unplaced(each.record, _missing(each)) for each in placed]
    for rows in _by_setup(placed):
        points = {row: _Point.of(placed[row]) for row in rows}
        known = {row: point for row, point in points.items() if point is not None}
        if not known:
            continue
        try:
            made = _group(placed[rows[0]], list(known.values()))
        except InputError as error:
            if placed[rows[0]].record.point is None:
                raise
            for row in rows:
                found[row] = Unplaced(placed[row].record, str(error))
        else:
            for row, cost in zip(known, made, strict=True):
                found[row] = cost
    return found


def _missing(placed: Placed) -> str:
    """What a point without a cost lacks, and how to give it."""
    options = {"batch": "--batch", "input_tokens": "--input", "output_tokens": "--output"}
    lacking = [name for name in options if getattr(placed.record, name) is None]
    words = " and ".join(name.replace("_", " ") for name in lacking)
    return f"{words} not in the file: give {' '.join(options[name] for name in lacking)}"


@dataclass(frozen=True, slots=True)
class _Point:
    batch: float
    context: float
    prompt: float
    longest: float
    requests: float
    counted: bool
    static: bool

    @classmethod
    def of(cls, placed: Placed) -> _Point | None:
        """Batch and lengths of one replica."""
        record = placed.record
        context, output = record.context, record.value("output_tokens")
        counted = derive.decoding(record) if placed.replicas else None
        if context is None or output is None:
            return None
        if counted is None and record.tpot_s is None and record.output_tokens_per_s is None:
            return None
        batch = (counted or 1.0) / (placed.replicas or 1.0)
        prompt = record.value("input_tokens") or 0.0
        return cls(
            batch=max(batch, 1.0),
            context=float(round(context)),
            prompt=max(float(round(prompt)), 1.0),
            longest=float(round(prompt + output)),
            requests=max(float(round(batch)), 1.0),
            counted=counted is not None,
            static=record.static,
        )


def _by_setup(placed: Sequence[Placed]) -> Iterable[list[int]]:
    groups: dict[int, list[int]] = {}
    for index, each in enumerate(placed):
        groups.setdefault(id(each.setup), []).append(index)
    return groups.values()


def _group(placed: Placed, points: Sequence[_Point]) -> list[Cost]:
    """Costs of the points of one set-up. Between whole batches everything is linear."""
    setup = placed.setup
    step = _Between(setup, points)
    prompt, together = _prefills(setup, points)
    parts = {name: step.mean(partial(_part, name)) for name in PARTS}
    columns = {
        "floor_s": step.mean(lambda f: floor(f).total_s),
        "step_s": step.mean(lambda f: f.step_time_s),
        "low_s": step.mean(lambda f: f.step_time_low_s),
        "high_s": step.mean(lambda f: f.step_time_high_s),
        "bytes_s": step.mean(lambda f: f.mbu * f.step_time_s),
        "flops_s": step.mean(lambda f: f.mfu * f.step_time_s),
        "prompt_s": prompt.step_time_s,
        "together_s": together.step_time_s,
    }
    beyond = np.broadcast_to(step.upper.extrapolates, step.share.shape)
    launches = float(sum(operator.launches for operator in step.upper.operators))
    resident = _resident(setup, points)
    least = _least(kindest(setup, placed.cache_stated), points)
    return [
        Cost(
            batch=point.batch,
            context=point.context,
            counted=point.counted,
            extrapolates=bool(beyond[i]),
            parts_s={name: float(values[i]) for name, values in parts.items()},
            launches=launches,
            resident=resident[i],
            least=least[i],
            **{name: float(values[i]) for name, values in columns.items()},
        )
        for i, point in enumerate(points)
    ]


def _least(setup: Setup, points: Sequence[_Point]) -> list[Least]:
    """The floors of the points under the kindest set-up."""
    step = _Between(setup, points)
    prompt, together = (floor(each) for each in _prefills(setup, points))
    columns = {
        "step_s": step.mean(lambda f: floor(f).total_s),
        "flops_s": step.mean(lambda f: floor(f).compute_s),
        "kv_s": step.mean(lambda f: floor(f).kv_s),
        "prompt_s": prompt.total_s,
        "together_s": together.total_s,
        "prompt_flops_s": prompt.compute_s,
        "resident": _most_resident(setup, points),
    }
    shape = step.share.shape
    whole = {name: np.broadcast_to(values, shape) for name, values in columns.items()}
    return [
        Least(**{name: float(values[i]) for name, values in whole.items()})
        for i in range(len(points))
    ]


class _Between:
    """Forecasts at the whole batches around each batch, and anything of them in between."""

    def __init__(self, setup: Setup, points: Sequence[_Point]) -> None:
        batch = np.array([point.batch for point in points])
        context = _contexts(points)
        self.share = batch - np.floor(batch)
        self.lower = setup.decode(np.floor(batch), context)
        self.upper = setup.decode(np.ceil(batch), context)

    def mean(self, of: Callable[[Forecast], Array]) -> Array:
        """Linear between the two."""
        low = np.broadcast_to(of(self.lower), self.share.shape)
        high = np.broadcast_to(of(self.upper), self.share.shape)
        return np.asarray(low + self.share * (high - low))


def _part(name: str, forecast: Forecast) -> Array:
    return parts_of(forecast)[name]


def parts_of(forecast: Forecast) -> dict[str, Array]:
    """Seconds of a step by part; they sum to the step time."""
    causes = forecast.causes
    latencies = sum(
        (
            time.fixed_s
            for operator, time in zip(forecast.operators, forecast.times, strict=True)
            if operator.kind == "collective"
        ),
        np.zeros(()),
    )
    return {
        "weights": causes["weights"],
        "kv_cache": causes["kv_cache"],
        "activations": causes["activations"],
        "compute": causes["compute"],
        "launch_and_host": causes["overhead"] - latencies,
        "collectives": causes["interconnect"] + latencies,
    }


def _prefills(setup: Setup, points: Sequence[_Point]) -> tuple[Forecast, Forecast]:
    """One prompt alone, and the prompts of the whole batch in one pass."""
    prompts = np.array([point.prompt for point in points])
    requests = np.array([point.requests for point in points])
    return setup.prefill(np.ones_like(prompts), prompts), setup.prefill(requests, prompts)


def _resident(setup: Setup, points: Sequence[_Point]) -> list[int | None]:
    """The largest batches that memory holds at full length, as engines plan it."""
    try:
        planned = largest_batch(setup.decode(1, _longest(points)))
    except UnknownSpecError:
        return [None] * len(points)
    return [int(value) for value in planned]


def _most_resident(setup: Setup, points: Sequence[_Point]) -> Array:
    """The largest batches whose cache fits beside the weights; infinite where memory isn't known.

    A static batch ends with all its sequences at full length, served ones are half-way on average.
    """
    longest = np.where([point.static for point in points], _longest(points), _contexts(points))
    try:
        held = setup.decode(1, longest).memory
        capacity = float(setup.device.memory_bytes)
    except UnknownSpecError:
        return np.full(longest.shape, np.inf)
    each = np.broadcast_to(held.cache_bytes, longest.shape)
    free = capacity - np.broadcast_to(held.weight_bytes, longest.shape)
    most = np.where(each > 0, free * setup.parallelism.data / np.maximum(each, 1.0), np.inf)
    return np.maximum(most, 0.0)


def _contexts(points: Sequence[_Point]) -> Array:
    return np.array([point.context for point in points])


def _longest(points: Sequence[_Point]) -> Array:
    return np.array([max(point.longest - 1.0, 0.0) for point in points])


def request_tokens(record: Record) -> tuple[float, float]:
    """Prompt and reply of a record whose cost is known."""
    return record.value("input_tokens") or 0.0, record.value("output_tokens") or 1.0
