"""Nothing measured is lost: truncated, foreign, newer, hand-edited and unwritable journals."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roofcast.calibrate.journal import Header, Journal, read
from roofcast.calibrate.samples import Measurement
from roofcast.hardware.errors import FileFormatError, InputError, SchemaVersionError

HEADER = Header(
    "cpu-test", "torch", "quick-0-abc", "2026-01-01T00:00:00+00:00", conditions={"threads": 2.0}
)


def entry(rows: int) -> Measurement:
    return Measurement("gemm", {"rows": rows, "dtype": "bf16"}, (1e-3, 1.1e-3), at_s=0.5)


def written(path: Path, count: int = 3) -> Journal:
    journal = Journal.create(path, HEADER)
    for rows in range(count):
        journal.add(entry(rows))
    return journal


def test_what_is_added_is_read_back(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl")
    contents = read(tmp_path / "a.jsonl")
    assert contents.header == HEADER
    assert [e.task for e in contents.measured] == [entry(rows).task for rows in range(3)]
    assert contents.measured[0].samples_s == (1e-3, 1.1e-3)
    assert math.isnan(contents.measured[0].others)


def test_resuming_knows_what_is_there(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl")
    resumed = Journal.resume(tmp_path / "a.jsonl", HEADER)
    assert entry(2).task.key in resumed
    assert entry(3).task.key not in resumed


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_half_a_last_line_is_dropped_and_overwritten(tmp_path: Path, cut: int) -> None:
    """What SIGKILL leaves behind: every finished line stays, the broken one is measured again."""
    path = tmp_path / "a.jsonl"
    written(path)
    path.write_bytes(path.read_bytes()[:-cut])
    resumed = Journal.resume(path, HEADER)
    assert len(resumed) == 2
    resumed.add(entry(2))
    assert len(read(path).measured) == 3


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-9], *lines[2:]]) + "\n")
    with pytest.raises(FileFormatError, match="line 2: not valid JSON"):
        read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples_s": "fast"}, "line 2: samples_s"),
        ({"watts": 3}, "line 2: watts"),
    ],
)
def test_a_hand_edited_line_is_an_error_that_names_the_field(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "a.jsonl"
    written(path, 1)
    header, line = path.read_text().splitlines()
    path.write_text(f"{header}\n{json.dumps({**json.loads(line), **change})}\n")
    with pytest.raises(FileFormatError, match=message):
        read(path)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"schema_version": 99}\n')
    with pytest.raises(SchemaVersionError, match="99"):
        read(path)


def test_another_device_or_plan_cannot_be_resumed(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl")
    other = Header("gpu-test", "torch", HEADER.plan, HEADER.started)
    with pytest.raises(InputError, match="measured with device cpu-test, not gpu-test"):
        Journal.resume(tmp_path / "a.jsonl", other)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes fail, as on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_one_line_and_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    journal = written(path)
    before = path.read_bytes()
    with (
        file_size_limit(len(before) + 30),
        pytest.raises(InputError, match="cannot write") as caught,
    ):
        journal.add(entry(3))
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    journal.add(entry(3))
    assert len(read(path).measured) == 4


def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        Journal.create(tmp_path / "file" / "a.jsonl", HEADER)


_KILLED = """
import sys
from pathlib import Path
from tests.calibrate.test_journal import HEADER, entry
from roofcast.calibrate.journal import Journal
journal = Journal.create(Path(sys.argv[1]), HEADER)
for rows in range(10**6):
    journal.add(entry(rows))
    print(rows, flush=True)
"""


def test_sigkill_loses_no_finished_measurement(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(path)], cwd=root, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        finished = [int(process.stdout.readline()) for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
    assert len(Journal.resume(path, HEADER)) >= len(finished)
