"""Calibrations compared and merged: differences beyond noise, unlike conditions refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from roofcast.calibrate import journal
from roofcast.calibrate.calibration import finish, journal_path
from roofcast.calibrate.comparison import changed_conditions, compare, compare_files, kind_changes
from roofcast.calibrate.journal import Header, Journal
from roofcast.calibrate.merging import merge, one_after_another, pooled
from roofcast.calibrate.samples import Measurement
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import Parameter, Profile
from tests.calibrate.simulated import DEVICE, simulated

CONDITIONS = {"threads": 2.0, "torch": "2.9.0", "date": "2026-01-01", "load_average": 0.1}
HEADER = Header(DEVICE.id, "torch", "full-0-x", "2026-01-01T00:00:00+00:00", conditions=CONDITIONS)


def calibrated(folder: Path, seed: int, header: Header = HEADER, slower: float = 1.0) -> Path:
    """A simulated calibration on disk; its decode runs may be slower than the truth."""
    path = folder / f"{seed}.json"
    written = Journal.create(journal_path(path), header)
    for entry in simulated(seed, outliers=0.0):
        factor = slower if entry.kind == "attention" else 1.0
        written.add(replace(entry, samples_s=tuple(factor * s for s in entry.samples_s)))
    return finish(DEVICE, written, path).path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    return calibrated(folder, 1), calibrated(folder, 2)


def test_two_runs_of_one_machine_agree_within_their_errors(pair: tuple[Path, Path]) -> None:
    found = compare_files(*pair)
    assert found.conditions == ()
    known = [change for change in found.parameters if change.changed is not None]
    assert len(known) >= 8
    assert sum(bool(change.changed) for change in known) <= 1


def test_a_kernel_that_became_slower_is_found_by_its_samples(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    """Attention 30 % slower than before, the rest as it was: 4 % noise a task hides neither."""
    found = compare_files(pair[0], calibrated(tmp_path, 2, slower=1.3))
    kinds = {change.kind: change for change in found.kinds}
    assert kinds["attention"].changed
    assert kinds["attention"].ratio == pytest.approx(1.3, rel=0.05)
    assert not kinds["gemm"].changed


def test_parameters_without_errors_are_not_judged() -> None:
    one = Profile("a", "d", "torch", "", {"host.step_s": Parameter(1.0, "s", "fitted")})
    (change,) = compare(one, one).parameters
    assert change.changed is None
    assert math.isnan(change.deviation)
    assert change.ratio == 1.0


def test_conditions_that_always_differ_are_no_difference() -> None:
    other = {**CONDITIONS, "date": "2027-01-01", "load_average": 9.0}
    assert changed_conditions(CONDITIONS, other) == ()
    assert changed_conditions(CONDITIONS, {**other, "threads": 4.0}) == (("threads", 2.0, 4.0),)


def test_the_ratio_of_a_kind_is_the_median_over_its_tasks() -> None:
    def entries(*seconds: float) -> list[Measurement]:
        return [Measurement("gemm", {"rows": i}, (s,)) for i, s in enumerate(seconds)]

    (change,) = kind_changes(entries(1.0, 2.0, 4.0), entries(2.0, 2.0, 12.0))
    assert (change.ratio, change.low, change.high) == (2.0, 1.0, 3.0)
    assert not change.changed


def test_merging_pools_the_samples_of_equal_tasks(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    merged = merge(pair, tmp_path / "both.json", DEVICE)
    counts = [len(journal.read(journal_path(path)).measured) for path in pair]
    contents = journal.read(merged.journal)
    doubled = [e for e in contents.measured if len(e.samples_s) == 10]
    assert len(doubled) >= 60  # every kernel is in both plans
    assert len(contents.measured) == sum(counts) - len(doubled)


def journals(folder: Path, *headers: Header) -> list[Path]:
    """Profiles that have a journal of no samples beside them."""
    paths = [folder / f"{index}.json" for index in range(len(headers))]
    for path, header in zip(paths, headers, strict=True):
        Journal.create(journal_path(path), header)
    return paths


def test_unlike_conditions_refuse_to_merge(tmp_path: Path) -> None:
    paths = journals(tmp_path, HEADER, replace(HEADER, conditions={**CONDITIONS, "threads": 1.0}))
    with pytest.raises(InputError, match=r"unlike conditions, threads was 2\.0 and 1\.0"):
        merge(paths, tmp_path / "both.json", DEVICE)
    assert not (tmp_path / "both.json").exists()


def test_another_engine_refuses_to_merge(tmp_path: Path) -> None:
    paths = journals(tmp_path, HEADER, replace(HEADER, engine="vllm"))
    with pytest.raises(InputError, match="engine is torch and vllm"):
        merge(paths, tmp_path / "both.json", DEVICE)


def test_merged_calibrations_follow_each_other() -> None:
    """The second one's visits at 3 s and 7 s come after the first one's end at 10 s."""
    first = Measurement("gemm", {"rows": 1}, (1.0,), at_s=10.0)
    second = Measurement(
        "gemm", {"rows": 1}, (2.0, 3.0), at_s=7.0, visits=2, ends=((3.0, 1), (7.0, 1))
    )
    (one,) = pooled(one_after_another([[first], [second]]))
    assert one.by_visit == ((10.0, (1.0,)), (13.0, (2.0,)), (17.0, (3.0,)))


def test_references_of_merged_calibrations_stay_apart() -> None:
    one = [Measurement("reference", {"bytes": 8, "turn": turn}, (1.0,)) for turn in range(3)]
    assert len(pooled([*one, *one])) == 6
