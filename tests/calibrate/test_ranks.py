"""Two processes of this machine: sums, gathers, a sharded decoder, a rank that fails.

That a sharded decoder computes what the whole one does is tested beside the decoder.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402 - torch may be missing

from roofcast.calibrate.clock import Effort  # noqa: E402
from roofcast.calibrate.collectives import Assignment, measure_ranks  # noqa: E402
from roofcast.calibrate.plan import collective_tasks, sharded_tasks  # noqa: E402
from roofcast.calibrate.ranks import Rank, Send, run_ranks  # noqa: E402
from roofcast.calibrate.shapes import find_shape  # noqa: E402
from roofcast.hardware.errors import MeasurementError  # noqa: E402

EFFORT = Effort(budget_s=0.05, least=5, most=10)


def fails(rank: Rank, argument: Any, send: Send) -> None:
    del argument, send
    if rank.index == 1:
        raise SystemExit(3)
    dist.barrier()


def test_collectives_and_sharded_steps_are_measured() -> None:
    tasks = (
        *collective_tasks(2, "fp32", largest_bytes=16 << 10),
        next(sharded_tasks(2, "fp32", [find_shape("deep-narrow-137m", "small")])),
    )
    assert [task.facts.get("bytes") for task in tasks] == [4096, 16384, 4096, 16384, None]
    found = {
        task.key: timing for task, timing in measure_ranks(Assignment(tasks, EFFORT), 2, "cpu")
    }
    assert list(found) == [task.key for task in tasks]
    for timing in found.values():
        assert 5 <= len(timing.samples_s) <= 12
        assert min(timing.samples_s) > 0


def test_a_rank_that_dies_ends_the_group_with_one_line() -> None:
    with pytest.raises(MeasurementError, match=r"exit code 3|a rank of 2 failed") as caught:
        list(run_ranks(fails, None, 2))
    assert "\n" not in str(caught.value)
