"""Two processes of this machine: sums, gathers, a sharded decoder, a rank that fails.

That a sharded decoder computes what the whole one does is tested beside the decoder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402 - torch may be missing

from roofcast.calibrate.clock import Effort  # noqa: E402
from roofcast.calibrate.collectives import Assignment, measure_ranks, record_ranks  # noqa: E402
from roofcast.calibrate.disturbance import failures  # noqa: E402
from roofcast.calibrate.journal import Header, Journal  # noqa: E402
from roofcast.calibrate.measuring import Recorder  # noqa: E402
from roofcast.calibrate.plan import collective_tasks, make_plan, sharded_tasks  # noqa: E402
from roofcast.calibrate.progress import silent  # noqa: E402
from roofcast.calibrate.ranks import Rank, Send, run_ranks  # noqa: E402
from roofcast.calibrate.samples import FAILED  # noqa: E402
from roofcast.calibrate.shapes import find_shape  # noqa: E402
from roofcast.calibrate.shards import Shard  # noqa: E402
from roofcast.hardware.errors import MeasurementError  # noqa: E402
from tests.calibrate.simulated import TARGET  # noqa: E402

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


def test_what_ranks_cannot_share_is_an_outcome_and_ends_nothing(tmp_path: Path) -> None:
    """Nine query heads over two ranks: the sum is measured, the decoder kept with the reason."""
    tasks = (
        next(collective_tasks(2, "fp32", largest_bytes=4 << 10)),
        next(sharded_tasks(2, "fp32", [find_shape("SmolLM2-135M", "small")])),
    )
    bench: Any = SimpleNamespace(device=torch.device("cpu"))
    journal = Journal.create(tmp_path / "j.jsonl", Header("d", "torch", "p", "now"))
    record_ranks(Recorder(bench, journal, silent, deadline_s=60.0), tasks, EFFORT, "small")
    summed, decoded = (journal[task.key] for task in tasks)
    assert len(summed.samples_s) >= 5
    assert decoded.outcome.startswith(FAILED)
    assert "9 pieces" in decoded.outcome
    assert failures([summed, decoded]) == f"1 task was not measured, {decoded.outcome}"
    assert failures([summed]) is None


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_plans_choose_a_shape_that_ranks_can_share(ranks: int) -> None:
    plan = make_plan(replace(TARGET, ranks=ranks), quick=False)
    sharded = [task for task in plan.ranks if task.kind == "sharded"]
    assert max(task.whole("ranks") for task in sharded) == ranks
    for task in sharded:
        architecture = find_shape(task.text("shape"), "small").architecture("bf16")
        for weight in (w for layer in architecture.layers for w in layer.weights):
            count = task.whole("ranks")
            parts = [Shard(rank, count).rows(weight) for rank in range(count)]
            assert max(part.stop for part in parts) == weight.rows
