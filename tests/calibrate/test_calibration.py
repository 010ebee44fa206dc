"""A whole calibration on this machine with a tiny plan: interrupted, killed, resumed, refused."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roofcast.calibrate import arena, bench, calibration, journal, measuring, shapes
from roofcast.calibrate.calibration import Calibration, calibrate
from roofcast.calibrate.clock import Effort
from roofcast.calibrate.plan import Plan, gemm_task, run_task
from roofcast.calibrate.progress import Progress, silent
from roofcast.calibrate.samples import Task
from roofcast.calibrate.shapes import Shape
from roofcast.hardware import profile_store
from roofcast.hardware.errors import InputError

torch = pytest.importorskip("torch")

GEMMS = [gemm_task(rows, n, k, "bf16") for n, k in ((64, 64), (512, 256)) for rows in (1, 8, 64)]
SMALL = [
    Task("norm", {"rows": rows, "width": width, "dtype": "bf16"})
    for rows in (1, 8)
    for width in (64, 256)
]
ATTENTION = [
    Task("attention", {
        "batch": batch, "context": context, "query_heads": 4, "kv_heads": 2, "head_dim": 32,
        "window": 0, "dtype": "bf16",
    })
    for batch in (1, 4)
    for context in (16, 128)
]  # fmt: skip
READ = Task("read", {"bytes": 8 << 20})
CONFIG = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
}
SHAPES = {
    name: Shape(name, "small", ("full",), {**CONFIG, "num_hidden_layers": layers}, held_out)
    for name, layers, held_out in (("two", 2, False), ("four", 4, True), ("eight", 8, False))
}
RUNS = [run_task(shape, batch, 32, "bf16") for shape in SHAPES.values() for batch in (1, 4)]
EFFORT = Effort(budget_s=0.01, least=3, most=6)
PLAN = Plan(
    "tiny",
    0,
    "eager",
    (READ, *GEMMS, *SMALL, *ATTENTION),
    tuple(RUNS),
    (),
    EFFORT,
    EFFORT,
    2,
    600.0,
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other on a busy machine take a hundred times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch.setattr)


def make_tiny(setattr_: object = setattr) -> None:
    """A plan of seconds, and a cold buffer of 64 MB instead of four caches."""
    assert callable(setattr_)
    setattr_(calibration, "make_plan", lambda *_, **__: PLAN)
    setattr_(shapes, "shapes", lambda _: SHAPES)
    setattr_(bench, "cache_bytes", lambda *_: 16 << 20)
    setattr_(arena, "_LEAST_BYTES", 0)
    setattr_(measuring.Recorder, "look_again", lambda *_: None)  # this machine may be busy
    setattr_(bench, "main_dtype", lambda _: "bf16")


def tasks(path: Path) -> list[str]:
    return [e.task.key for e in journal.read(path).measured if e.kind != "reference"]


EVERYTHING = {task.key for task in (*PLAN.kernels, *PLAN.runs)}


@pytest.fixture(scope="module")
def done(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch.setattr)
        return calibrate("cpu", out=tmp_path_factory.mktemp("done") / "p.json")


def test_everything_planned_is_measured_and_kept(done: Calibration) -> None:
    assert set(tasks(done.journal)) == EVERYTHING
    assert all(e.samples_s for e in journal.read(done.journal).measured)


def test_the_profile_is_what_a_forecast_reads(done: Calibration) -> None:
    profile = profile_store.read(done.path)
    assert profile == done.profile
    assert profile.engine == "torch"
    assert profile.valid_range == {"batch": (1.0, 4.0), "context": (32.0, 32.0)}
    assert profile.roofs["memory_bandwidth_bytes_per_s"] > 1e8
    assert {"torch", "threads", "date"} <= set(profile.conditions)


def test_the_result_is_that_of_the_contract(done: Calibration) -> None:
    result = done.as_json()
    assert set(result) == {"profile", "device", "held_out", "warnings"}
    held_out = result["held_out"]
    assert isinstance(held_out, dict)
    assert held_out["runs"] == 2  # of the shape that is never fitted
    assert set(held_out) == {"runs", "median_ape", "p90_ape", "signed_median"}


class InterruptAt:
    """A listener that presses Ctrl-C before the n-th task."""

    def __init__(self, turn: int) -> None:
        self.left = turn

    def __call__(self, progress: Progress) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("turn", [3, 18])
def test_an_interrupted_calibration_resumes_where_it_was(tmp_path: Path, turn: int) -> None:
    out = tmp_path / "p.json"
    with pytest.raises(InputError, match="--resume goes on from there") as caught:
        calibrate("cpu", out=out, listener=InterruptAt(turn))
    assert "\n" not in str(caught.value)
    before = {e.task.key: e for e in journal.read(calibration.journal_path(out)).measured}
    resumed = calibrate("cpu", out=out, resume=True)
    after = {e.task.key: e for e in journal.read(resumed.journal).measured}
    for key, entry in before.items():
        assert after[key].samples_s[: len(entry.samples_s)] == entry.samples_s
    assert all(
        entry.visits == PLAN.run_visits for entry in after.values() if entry.kind == "decode"
    )
    kernels = {task.key for task in PLAN.kernels}
    assert all(entry.visits == 2 for key, entry in after.items() if key in kernels)
    assert set(tasks(resumed.journal)) == EVERYTHING


_KILLED = """
import sys
from pathlib import Path
from tests.calibrate.test_calibration import make_tiny
from roofcast.calibrate.calibration import calibrate
make_tiny()
calibrate("cpu", out=Path(sys.argv[1]))
"""


def test_a_killed_calibration_resumes_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    kept = calibration.journal_path(out)
    command, root = [sys.executable, "-c", _KILLED, str(out)], Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        while process.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < 6):
            time.sleep(0.01)
        process.kill()
    before = {e.task.key: e.samples_s for e in journal.read(kept).measured}
    assert len(before) >= 5
    after = {
        e.task.key: e.samples_s
        for e in journal.read(calibrate("cpu", out=out, resume=True).journal).measured
    }
    assert all(after[key][: len(samples)] == samples for key, samples in before.items())


def test_starting_afresh_keeps_the_older_samples_aside(tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    with pytest.raises(InputError):
        calibrate("cpu", out=out, listener=InterruptAt(4))
    old = calibration.journal_path(out).read_bytes()
    with pytest.raises(InputError):
        calibrate("cpu", out=out, listener=InterruptAt(2))
    assert (tmp_path / "p.samples.previous.jsonl").read_bytes() == old


def test_without_torch_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install 'roofcast\[calibrate\]'"):
        calibrate("cpu")


def test_a_folder_that_cannot_be_written_fails_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    started = []
    with pytest.raises(InputError, match="cannot write"):
        calibrate("cpu", out=tmp_path / "file" / "p.json", listener=started.append)
    assert not started


def test_a_run_beyond_memory_is_halved_until_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with room for batch 2 and a half, by its own account."""
    from roofcast.calibrate import runs

    weights = SHAPES["two"].architecture("bf16").weight_bytes
    sequence = 2 * 2 * 2 * 32 * 2 * (1024 + 16)  # layers, K and V, KV heads, dim, bytes, capacity
    monkeypatch.setattr(runs, "usable_memory", lambda _: (weights + 2.5 * sequence) / 0.9)
    plan = replace(PLAN, kernels=(READ,), runs=(run_task(SHAPES["two"], 8, 1024, "bf16"),))
    monkeypatch.setattr(calibration, "make_plan", lambda *_, **__: plan)
    with pytest.raises(Exception, match="decode runs were measured"):
        calibrate("cpu", out=tmp_path / "p.json", listener=silent)
    entries = [e for e in journal.read(tmp_path / "p.samples.jsonl").measured if e.kind == "decode"]
    assert [e.outcome for e in entries] == ["out of memory", "out of memory", "ok"]
    assert [e.facts["batch"] for e in entries] == [8, 4, 2]


def test_graphs_need_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="CUDA graphs; cpu has none"):
        calibrate("cpu", mode="graph", out=tmp_path / "p.json")
    with pytest.raises(InputError, match="unknown mode 'graf'; did you mean 'graph'"):
        calibrate("cpu", mode="graf")


def test_compiled_steps_need_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler"):
        calibrate("cpu", mode="compiled")
