"""Real decode runs: a decoder of random weights steps at a fixed batch and context, and is timed.

Models stay in memory between runs, so that runs of all shapes can alternate at random. A run that does
not fit is recorded as such and tried again with half the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roofcast.calibrate.bench import Bench, usable_memory
from roofcast.calibrate.clock import Effort, Timing, measure
from roofcast.calibrate.decoder import Decoder
from roofcast.calibrate.measuring import OUT_OF_MEMORY, Recorder, Timer, release_memory
from roofcast.calibrate.modes import ROOM, stepper
from roofcast.calibrate.plan import Plan
from roofcast.calibrate.samples import Task
from roofcast.calibrate.shapes import Scale, find_shape
from roofcast.simulator.memory import rank_cache_bytes
from roofcast.simulator.passes import Pass
from roofcast.simulator.workload import Workload

_RESERVE = 0.1  # of the memory left: activations, allocator, everybody else
_SEED = 20


@dataclass
class Models:
    """Decoders by shape, kept while memory lasts; the one unused longest goes first."""

    bench: Bench
    scale: Scale
    packed: bool | None = None
    _kept: dict[tuple[str, str], Decoder] = field(default_factory=dict)

    def get(self, shape: str, dtype: str, cache_bytes: float) -> Decoder:
        """The decoder of a shape, with room left for a cache; MemoryError where there is none."""
        key = (shape, dtype)
        decoder = self._kept.pop(key, None)
        architecture = find_shape(shape, self.scale).architecture(dtype)
        needed = cache_bytes + (0.0 if decoder else architecture.weight_bytes)
        self._make_room(needed)
        if decoder is None:
            decoder = Decoder(
                architecture, self.bench.device, dtype, seed=_SEED, packed=self.packed
            )
        self._kept[key] = decoder
        return decoder

    def _make_room(self, needed: float) -> None:
        while needed > (1 - _RESERVE) * usable_memory(self.bench.device):
            if not self._kept:
                raise MemoryError(f"{needed:.3g} bytes needed")
            self._kept.pop(next(iter(self._kept)))
            release_memory(self.bench.device)


def record_runs(recorder: Recorder, plan: Plan, timer: Timer, *, at_least: int) -> None:
    """Measure the plan's decode runs, `at_least` so many of them, then those that had to shrink."""
    recorder.record("decode runs", plan.runs, timer, at_least, plan.run_visits)
    shrunk = _shrunk(recorder, plan.runs)
    while shrunk:
        recorder.record("smaller decode runs", shrunk, timer)
        shrunk = [task for task in _shrunk(recorder, shrunk) if task.key not in recorder.journal]


def run_timer(recorder: Recorder, plan: Plan, scale: Scale) -> Timer:
    """Times decode runs; models stay in memory from one to the next."""
    packed = False if plan.mode == "compiled" else None
    models = Models(recorder.bench, scale, packed)

    def timer(task: Task) -> Timing:
        return time_run(models, task, recorder.bench, plan.run_effort)

    return timer


def _shrunk(recorder: Recorder, tasks: Sequence[Task]) -> list[Task]:
    """Half the batch for every task that ran out of memory."""
    failed = {entry.task.key for entry in recorder.journal if entry.outcome == OUT_OF_MEMORY}
    return [
        replace(task, facts={**task.facts, "batch": task.whole("batch") // 2})
        for task in tasks
        if task.key in failed and task.whole("batch") > 1
    ]


def time_run(models: Models, task: Task, bench: Bench, effort: Effort) -> Timing:
    """Time decode steps at the task's batch and context: sampling included, greedy."""
    batch, context = task.whole("batch"), task.whole("context")
    architecture = find_shape(task.text("shape"), models.scale).architecture(task.text("dtype"))
    capacity = context + ROOM
    work = Pass(architecture, Workload.decode(batch, capacity), kv_dtype=task.text("dtype"))
    cache_bytes = batch * float(rank_cache_bytes(work, np.asarray(float(capacity))))
    decoder = models.get(task.text("shape"), task.text("dtype"), cache_bytes)
    cache = decoder.new_cache(batch, capacity)
    decoder.fill(cache, context)
    step = stepper(decoder, cache, context, task.text("mode"))
    return measure(step, bench.step_clock, effort)
