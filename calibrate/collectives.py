"""What ranks exchange, and tensor-parallel decode, measured between processes of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from roofcast.calibrate.clock import Call, Effort, Timing, clock_for
from roofcast.calibrate.decoder import DTYPES, Decoder
from roofcast.calibrate.measuring import Recorder
from roofcast.calibrate.modes import ROOM, stepper
from roofcast.calibrate.ranks import Rank, Send, measure_together, run_ranks
from roofcast.calibrate.samples import Task
from roofcast.calibrate.shapes import Scale, find_shape
from roofcast.calibrate.shards import Shard
from roofcast.hardware.errors import MeasurementError

_SEED = 20


@dataclass(frozen=True)
class Assignment:
    """What a group of ranks is to measure."""

    tasks: tuple[Task, ...]
    effort: Effort
    scale: Scale = "small"


def record_ranks(recorder: Recorder, tasks: Sequence[Task], effort: Effort, scale: Scale) -> None:
    """Measure what the journal lacks, one group of processes for each number of ranks.

    A group that fails leaves what it measured; its other tasks are kept with the reason.
    """
    device = recorder.bench.device.type
    for count in sorted({task.whole("ranks") for task in tasks}):
        lacking = [task for task in tasks if task.whole("ranks") == count]
        lacking = [task for task in lacking if task.key not in recorder.journal]
        if lacking and recorder.elapsed_s < recorder.deadline_s:
            found = measure_ranks(Assignment(tuple(lacking), effort, scale), count, device)
            try:
                recorder.take(f"{count} processes", len(lacking), found)
            except MeasurementError as error:
                recorder.miss(lacking, str(error))


def measure_ranks(assignment: Assignment, ranks: int, device: str) -> Iterator[tuple[Task, Timing]]:
    """Measure tasks in a group of processes, one after another."""
    yield from run_ranks(_measure, assignment, ranks, device)


def _measure(rank: Rank, assignment: Assignment, send: Send) -> None:
    """What every rank runs."""
    clock = clock_for(rank.device)
    for task in assignment.tasks:
        call = _CALLS[task.kind](task, rank, assignment)
        with torch.inference_mode():
            timing = measure_together(call, clock, assignment.effort, rank)
        send((task, timing))


def _all_reduce(task: Task, rank: Rank, assignment: Assignment) -> Call:
    del assignment
    message = _message(task, rank, task.whole("bytes"))
    return lambda: dist.all_reduce(message)


def _all_gather(task: Task, rank: Rank, assignment: Assignment) -> Call:
    """`bytes` are those of the whole that every rank ends up with."""
    del assignment
    part = _message(task, rank, task.whole("bytes") // rank.count)
    parts = [torch.empty_like(part) for _ in range(rank.count)]
    return lambda: dist.all_gather(parts, part)


def _message(task: Task, rank: Rank, size: int) -> torch.Tensor:
    dtype = DTYPES[task.text("dtype")]
    return torch.zeros(max(1, size // dtype.itemsize), dtype=dtype, device=rank.device)


def _decode(task: Task, rank: Rank, assignment: Assignment) -> Call:
    """Steps of a decoder cut over the ranks."""
    architecture = find_shape(task.text("shape"), assignment.scale).architecture(task.text("dtype"))
    shard = Shard(rank.index, rank.count)
    decoder = Decoder(architecture, rank.device, task.text("dtype"), seed=_SEED, shard=shard)
    context = task.whole("context")
    cache = decoder.new_cache(task.whole("batch"), context + ROOM)
    decoder.fill(cache, context)
    return stepper(decoder, cache, context)


_CALLS: Mapping[str, Callable[[Task, Rank, Assignment], Call]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "sharded": _decode,
}
