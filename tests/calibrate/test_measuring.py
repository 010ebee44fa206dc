"""What others disturbed is measured once more, the worst first, and only ever replaced by faster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from roofcast.calibrate.clock import Timing
from roofcast.calibrate.journal import Header, Journal
from roofcast.calibrate.measuring import Recorder, is_disturbed, is_out_of_memory
from roofcast.calibrate.progress import silent
from roofcast.calibrate.samples import Measurement, Task


def entry(rows: int, seconds: float = 1.0, **changes: Any) -> Measurement:
    values = {"others": 0.0, "stolen": 0.0, **changes}
    return Measurement("gemm", {"rows": rows}, (seconds,) * 5, **values)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    journal = Journal.create(tmp_path / "j.jsonl", Header("d", "torch", "p", "now"))
    bench: Any = SimpleNamespace()
    found = Recorder(bench, journal, silent, deadline_s=60.0)
    found._last_reference = float("inf")  # no reference kernel: there is no bench
    return found


def test_the_worst_disturbed_come_first_and_faster_wins(recorder: Recorder) -> None:
    entries = [entry(1), entry(2, others=0.3), entry(3, others=0.9), entry(4, stolen=0.2)]
    for each in entries:
        recorder.journal.add(each)
    asked: list[int] = []

    def timer(task: Task) -> Timing:
        asked.append(task.whole("rows"))
        return Timing((2.0 if task.whole("rows") == 2 else 0.5,) * 5, steady=True)

    recorder.look_again("again", [each.task for each in entries], timer)
    assert asked == [3, 2, 4]
    medians = {e.facts["rows"]: e.median_s for e in recorder.journal}
    assert medians == {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5}


def test_a_resumed_calibration_goes_on_with_the_clock(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "j.jsonl", Header("d", "torch", "p", "now"))
    journal.add(entry(1, at_s=500.0))
    bench: Any = SimpleNamespace()
    resumed = Recorder(bench, journal, silent, deadline_s=60.0)
    resumed._last_reference = float("inf")
    resumed.record("runs", [entry(2).task], lambda _: Timing((1.0,) * 5, steady=True))
    (late,) = (e for e in journal if e.facts["rows"] == 2)
    assert 500.0 <= late.at_s < 560.0
    assert resumed.elapsed_s < 60.0


def test_no_time_means_no_second_look(recorder: Recorder) -> None:
    recorder.journal.add(entry(1, others=0.9))
    recorder.deadline_s = -1.0
    recorder.look_again("again", [entry(1).task], lambda _: pytest.fail("measured"))


def test_every_task_is_visited_before_the_first_is_visited_again(recorder: Recorder) -> None:
    asked: list[int] = []

    def timer(task: Task) -> Timing:
        asked.append(task.whole("rows"))
        return Timing((float(len(asked)),) * 2, steady=True)

    tasks = [Task("decode", {"rows": rows}) for rows in (1, 2)]
    recorder.record("runs", tasks, timer, visits=2)
    assert asked == [1, 2, 1, 2]
    assert recorder.journal[tasks[0].key].samples_s == (1.0, 1.0, 3.0, 3.0)
    recorder.record("runs", tasks, timer, visits=3)  # what a resumed calibration still lacks
    assert asked[4:] == [1, 2]


def test_scatter_alone_is_a_reason() -> None:
    scattered = Measurement("gemm", {}, (1.0, 1.0, 2.0, 3.0, 3.0), others=0.0, stolen=0.0)
    assert is_disturbed(scattered)
    assert not is_disturbed(entry(1))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError("no"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
