"""Processes that work as one group over torch.distributed: gloo on CPUs, NCCL on GPUs.

Every rank is a process of its own and, on GPUs, has a GPU of its own. Rank 0 sends what it found to
the parent, result by result. A rank that dies or hangs ends the group with one clear error.
"""

from __future__ import annotations

import multiprocessing
import queue
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from roofcast.calibrate.clock import Call, Clock, Effort, Timing
from roofcast.calibrate.samples import median, median_interval
from roofcast.hardware.errors import InputError, MeasurementError

_TIMEOUT_S = 180.0
_POLL_S = 0.2

Send = Callable[[Any], None]
Work = Callable[["Rank", Any, Send], None]


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a group."""

    index: int
    count: int
    device: torch.device

    def agree(self, flag: bool) -> bool:
        """What rank 0 says; every rank must ask at the same time."""
        answer = torch.tensor([int(flag)], device=self.device)
        dist.broadcast(answer, src=0)
        return bool(answer.item())


def run_ranks(work: Work, argument: Any, count: int, device: str = "cpu") -> Iterator[Any]:
    """Run `work(rank, argument, send)` in `count` processes; yields what rank 0 sends, as it comes.

    `work` is a function of a module, `argument` can be pickled. MeasurementError where a rank fails.
    """
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        processes = [
            context.Process(
                target=_enter, args=(work, argument, (index, count, device, str(meeting)), results)
            )
            for index in range(count)
        ]
        for process in processes:
            process.start()
        try:
            yield from _received(results, processes)
        finally:
            for process in processes:
                if process.is_alive():
                    process.terminate()
                process.join()


_DONE, _FAILED = "done", "failed"


def _received(results: Any, processes: list[Any]) -> Iterator[Any]:
    last = time.monotonic()
    while True:
        try:
            kind, value = results.get(timeout=_POLL_S)
        except queue.Empty:
            failed = [p.exitcode for p in processes if p.exitcode not in (None, 0)]
            if failed:
                raise MeasurementError(
                    f"a rank of {len(processes)} ended with exit code {failed[0]}"
                ) from None
            if time.monotonic() - last > _TIMEOUT_S:
                raise MeasurementError(
                    f"no rank of {len(processes)} has answered for {_TIMEOUT_S:.0f} s"
                ) from None
            continue
        if kind == _DONE:
            return
        if kind == _FAILED:
            raise MeasurementError(f"a rank of {len(processes)} failed: {value}")
        last = time.monotonic()
        yield value


def _enter(work: Work, argument: Any, place: tuple[int, int, str, str], results: Any) -> None:
    """The life of one rank: join, work, leave."""
    index, count, kind, meeting = place
    device = torch.device(kind, index) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, torch.get_num_threads() // count))
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=f"file://{meeting}",
        rank=index,
        world_size=count,
        timeout=timedelta(seconds=_TIMEOUT_S),
    )

    def send(value: Any) -> None:
        if index == 0:
            results.put(("value", value))

    try:
        work(Rank(index, count, device), argument, send)
        dist.barrier()
    except (RuntimeError, MemoryError, InputError) as error:  # or another rank is gone
        results.put((_FAILED, str(error).partition("\n")[0]))
        return
    finally:
        dist.destroy_process_group()
    if index == 0:
        results.put((_DONE, None))


def measure_together(call: Call, clock: Clock, effort: Effort, rank: Rank) -> Timing:
    """`clock.measure` for a call that all ranks make equally often: rank 0 decides when to stop."""
    start = time.perf_counter()
    earlier, steady = median(clock.laps(call, 3)), False
    while rank.agree(not steady and time.perf_counter() - start < effort.budget_s / 3):
        later = median(clock.laps(call, 3))
        steady = abs(later - earlier) <= effort.steady * earlier
        earlier = later
    samples: list[float] = []
    while rank.agree(_wants_more(samples, effort, time.perf_counter() - start)):
        samples += clock.laps(call, max(1, effort.least // 2))
    return Timing(tuple(samples), steady)


def _wants_more(samples: list[float], effort: Effort, spent_s: float) -> bool:
    if len(samples) < effort.least:
        return True
    if len(samples) >= effort.most or spent_s >= effort.budget_s:
        return False
    low, high = median_interval(samples)
    return high - low > effort.interval * median(samples)
