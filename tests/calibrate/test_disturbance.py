"""Interference is recognised, said in words, and not seen where there is none."""

from __future__ import annotations

import math
import multiprocessing
import time

import pytest

from roofcast.calibrate import conditions, disturbance, nvml
from roofcast.calibrate.calibration import under_load
from roofcast.calibrate.samples import STATE, Measurement

QUIET = {"load_average": 0.1}


def entry(seconds: float = 1.0, kind: str = "gemm", **changes: object) -> Measurement:
    values = {"others": 0.01, "stolen": 0.0, "steady": True, **changes}
    return Measurement(kind, {"rows": 1}, (seconds,) * 9, **values)  # type: ignore[arg-type]


def state(turn: int = 0, **facts: float | str) -> Measurement:
    return Measurement(STATE, {"turn": turn, **facts}, ())


def test_a_quiet_machine_gets_no_warning() -> None:
    references = [entry(1.0 + 0.01 * i, "reference") for i in range(5)]
    assert disturbance.warnings_of([entry(), *references], QUIET) == ()


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ([entry(others=0.4)], "other processes used 40% of the processors"),
        ([entry(stolen=0.1)], "the hypervisor withheld 10.0% of the processors"),
        ([entry(steady=False), entry()], "50% of the warm-ups did not come to rest"),
        ([entry(s, "reference") for s in (1.0, 1.0, 1.5, 2.0)], "the same reference kernel varied"),
        ([Measurement("gemm", {}, (1.0, 1.0, 1.0, 2.0, 3.0), others=0.0)], "samples of one kernel"),
        ([entry(), state(throttled_by="hardware thermal slowdown")], "hardware thermal slowdown"),
        ([entry(), state(sm_clock_hz=1.9e9), state(1, sm_clock_hz=1.2e9)], "from 1200 to 1900 MHz"),
        ([entry(), state(processes=3.0)], "2 other processes were on this device"),
    ],
)
def test_each_sign_is_said_in_words(measured: list[Measurement], words: str) -> None:
    (warning,) = disturbance.warnings_of(measured, QUIET)
    assert words in warning


def test_a_busy_start_is_said() -> None:
    (warning,) = disturbance.warnings_of([entry()], {"load_average": 100.0})
    assert warning.startswith("the load average was 100.0")


def test_sleeping_threads_are_said() -> None:
    (warning,) = disturbance.warnings_of([entry()], {"omp_wait_policy": "PASSIVE"})
    assert "OMP_WAIT_POLICY=PASSIVE" in warning


def test_unreadable_shares_are_no_sign() -> None:
    unknown = entry(others=math.nan, stolen=math.nan)
    assert disturbance.warnings_of([unknown], {}) == ()


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_another_process_shows_in_the_ledger() -> None:
    """A process that spins for a second takes at least a tenth of one processor's time from /proc."""
    before = conditions.read_ledger()
    if before.busy_s is None:
        pytest.skip("no /proc/stat")
    other = multiprocessing.get_context("spawn").Process(target=_spin, args=(1.0,))
    other.start()
    time.sleep(1.2)
    after = conditions.read_ledger()
    other.join()
    share = conditions.others_share(before, after)
    assert share * (after.wall_s - before.wall_s) * after.capacity >= 0.1


def test_threads_are_told_to_sleep_where_others_want_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conditions, "_LISTEN_S", 0.0)
    monkeypatch.setattr(conditions, "others_share", lambda *_: 0.5)
    monkeypatch.setattr(conditions.sys, "modules", {})
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert conditions.wait_passively_if_shared()
    assert conditions.os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert not conditions.wait_passively_if_shared()  # said already
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(conditions, "others_share", lambda *_: 0.01)
    assert not conditions.wait_passively_if_shared()
    monkeypatch.setattr(conditions, "others_share", lambda *_: 0.5)
    monkeypatch.setattr(conditions.sys, "modules", {"torch": None})
    assert not conditions.wait_passively_if_shared()  # too late


def test_proc_stat_is_read_by_its_columns() -> None:
    """user nice system idle iowait irq softirq steal, in ticks of a hundredth of a second."""
    text = "cpu  100 20 30 9999 5 1 2 40 0 0\ncpu0 1 2 3 4 5 6 7 8\n"
    assert conditions._proc_stat(text) == (1.53, 0.4)
    assert conditions._proc_stat("") == (None, None)


def test_a_busy_device_is_described_by_medians() -> None:
    states = [state(turn, sm_clock_hz=1e9 * turn, throttled_by="nothing") for turn in (1, 2, 3)]
    assert under_load(states) == {"sm_clock_hz_under_load": 2e9}


def test_without_nvml_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml.importlib.util, "find_spec", lambda _: None)
    assert nvml.read(0) == {}
