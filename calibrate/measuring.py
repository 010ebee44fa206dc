"""Running a list of tasks: what is known is skipped, what runs is kept, drift is watched.

Between tasks a reference kernel is measured again and again. Every measurement records who else used
the processors meanwhile. Running out of memory is an outcome, not an error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import torch

from roofcast.calibrate import kernels, nvml
from roofcast.calibrate.bench import Bench
from roofcast.calibrate.clock import Effort, Timing, measure
from roofcast.calibrate.conditions import Ledger, others_share, read_ledger, stolen_share
from roofcast.calibrate.disturbance import OTHERS_LIMIT, SPREAD_LIMIT
from roofcast.calibrate.journal import Journal
from roofcast.calibrate.plan import REFERENCE
from roofcast.calibrate.progress import Listener, Progress
from roofcast.calibrate.samples import FAILED, STATE, Measurement, Task, joined

OUT_OF_MEMORY = "out of memory"
_REFERENCE_EVERY_S = 8.0
_REFERENCE_BYTES = 128 << 20

Timer = Callable[[Task], Timing]


@dataclass
class Recorder:
    """Takes measurements into a journal until `deadline_s` seconds after the start."""

    bench: Bench
    journal: Journal
    listener: Listener
    deadline_s: float
    started: float = field(default_factory=time.perf_counter)
    _last_reference: float = float("-inf")
    _before_s: float = field(init=False)

    def __post_init__(self) -> None:
        """A resumed calibration's clock goes on where the journal's ends."""
        self._before_s = max((entry.at_s for entry in self.journal), default=0.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the calibration began, this time."""
        return time.perf_counter() - self.started

    def kernel_timer(self, effort: Effort) -> Timer:
        """Times micro-benchmarks."""

        def timer(task: Task) -> Timing:
            clock = self.bench.clock_of(task)
            call, before = kernels.prepare(task, self.bench), kernels.wake(task, self.bench)
            return measure(call, clock, effort, before)

        return timer

    def look_again(self, stage: str, tasks: Sequence[Task], timer: Timer) -> None:
        """Measure once more what others disturbed, the worst first, while there is time.

        Others only ever slow a measurement down, so the faster one is kept.
        """
        known = [self.journal[task.key] for task in tasks if task.key in self.journal]
        suspects = sorted(filter(is_disturbed, known), key=lambda entry: -entry.others)
        for done, entry in enumerate(suspects):
            if self.elapsed_s > self.deadline_s:
                break
            self.listener(Progress(stage, done, len(suspects), entry.task.key, self.elapsed_s))
            self._reference()
            second = self._measured(entry.task, timer)
            if second.samples_s and second.median_s < entry.median_s:
                self.journal.add(second)

    def record(
        self, stage: str, tasks: Sequence[Task], timer: Timer, at_least: int = 0, visits: int = 1
    ) -> None:
        """Measure until every task was visited so often, in the order given, while there is time.

        All tasks are visited once before the first is visited again: a machine that is slow for
        seconds or minutes then spoils a part of many medians rather than the whole of some. The first
        `at_least` are measured however long it takes: without them nothing can be fitted.
        """
        total = visits * len(tasks)
        for done, (visit, task) in enumerate(product(range(1, visits + 1), tasks)):
            self.listener(Progress(stage, done, total, task.key, self.elapsed_s))
            known = self.journal.get(task.key)
            if known is not None and (known.visits >= visit or not known.samples_s):
                continue
            if self.elapsed_s > self.deadline_s and done >= at_least:
                break
            self._reference()
            found = self._measured(task, timer)
            self.journal.add(joined(known, found) if known else found)
        self.listener(Progress(stage, total, total, "", self.elapsed_s))

    def take(self, stage: str, total: int, found: Iterator[tuple[Task, Timing]]) -> None:
        """Keep what others measure, as it comes."""
        before = read_ledger()
        for done, (task, timing) in enumerate(found):
            after = read_ledger()
            entry = self._entry(task, timing, "ok", (before, after))
            self.journal.add(replace(entry, others=math.nan))  # those processes are not us
            self.listener(Progress(stage, done + 1, total, task.key, self.elapsed_s))
            before = after

    def miss(self, tasks: Sequence[Task], reason: str) -> None:
        """Keep why tasks that the journal lacks could not be measured."""
        for task in tasks:
            if task.key not in self.journal:
                at_s = self._before_s + self.elapsed_s
                outcome = f"{FAILED}{reason}"
                self.journal.add(Measurement(task.kind, task.facts, (), at_s, outcome=outcome))

    def _measured(self, task: Task, timer: Timer) -> Measurement:
        before = read_ledger()
        outcome, timing = "ok", Timing((), False)
        try:
            timing = timer(task)
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                outcome = OUT_OF_MEMORY
            elif kernels.may_lack(task):
                outcome = f"not supported: {str(error).partition(chr(10))[0]}"
            else:
                raise
            release_memory(self.bench.device)
        return self._entry(task, timing, outcome, (before, read_ledger()))

    def _entry(
        self, task: Task, timing: Timing, outcome: str, ledgers: tuple[Ledger, Ledger]
    ) -> Measurement:
        return Measurement(
            kind=task.kind,
            facts=task.facts,
            samples_s=timing.samples_s,
            at_s=self._before_s + self.elapsed_s,
            steady=timing.steady,
            others=others_share(*ledgers),
            stolen=stolen_share(*ledgers),
            outcome=outcome,
        )

    def _reference(self) -> None:
        if self.elapsed_s - self._last_reference < _REFERENCE_EVERY_S:
            return
        turn = _turns(self.journal)
        size = min(_REFERENCE_BYTES, self.bench.arena.size)
        task = Task(REFERENCE, {"bytes": size, "turn": turn})
        call = kernels.prepare(task, self.bench)
        clock = self.bench.kernel_clock
        effort = Effort(budget_s=0.1, least=5, most=20)
        self.journal.add(self._measured(task, lambda _: measure(call, clock, effort)))
        if self.bench.device.type == "cuda":
            self._state(turn)
        self._last_reference = self.elapsed_s

    def _state(self, turn: int) -> None:
        """Clocks, power, temperature and throttling now, while the device is busy."""
        state = {n: v for n, v in nvml.read(self.bench.device.index or 0).items() if v is not None}
        if state:
            facts = {"turn": turn, **state}
            self.journal.add(Measurement(STATE, facts, (), at_s=self.elapsed_s))


def is_disturbed(entry: Measurement) -> bool:
    """Whether other processes took a tenth of the processors, or the samples scatter for it."""
    shared = entry.others > 2 * OTHERS_LIMIT or entry.stolen > OTHERS_LIMIT
    return bool(entry.samples_s) and (shared or entry.spread > 2 * SPREAD_LIMIT)


def _turns(measured: Iterable[Measurement]) -> int:
    return sum(entry.kind == REFERENCE for entry in measured)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch failed to allocate; on a CPU it says so in words only."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)


def release_memory(device: torch.device) -> None:
    """Give cached device memory back, so that a smaller run has a chance."""
    import gc

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
