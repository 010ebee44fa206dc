"""`calibrate show`, `merge` and `diff` on simulated calibrations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roofcast.calibrate.calibration import Calibration, finish, journal_path
from roofcast.calibrate.journal import Header, Journal
from roofcast.hardware import catalog
from roofcast.reports.commands import calibrate_results
from tests.calibrate.simulated import DEVICE, simulated


@pytest.fixture(autouse=True)
def attached(monkeypatch):
    """The simulated machine is the one at hand."""
    monkeypatch.setattr(calibrate_results, "attached", lambda prefer: DEVICE)


def calibrated(path: Path, seed: int, torch: str = "2.9.0", slower: float = 1.0) -> Path:
    header = Header(DEVICE.id, "torch", "sim", "2026-01-31", conditions={"torch": torch})
    journal = Journal.create(journal_path(path), header)
    for entry in simulated(seed, outliers=0.0):
        factor = slower if entry.kind == "attention" else 1.0
        journal.add(replace(entry, samples_s=tuple(factor * s for s in entry.samples_s)))
    return finish(DEVICE, journal, path).path


def test_what_was_reached_stands_beside_the_datasheet(roofcast, calibration: Calibration) -> None:
    """The simulated memory gives its full 27 GB/s to reads, which 4 % of noise may move."""
    status, out, _ = roofcast("calibrate", "show", calibration.path)
    assert status == 0
    row = next(line for line in out.splitlines() if line.startswith("memory"))
    assert "27 GB/s" in row.replace(".0", "")
    assert 85 <= float(row.split("%")[0].split()[-1]) <= 115
    assert any(line.startswith("gemm ") for line in out.splitlines())


def test_residuals_are_those_of_the_samples(roofcast, calibration: Calibration) -> None:
    document = json.loads(roofcast("calibrate", "show", calibration.path, "--json")[1])
    kinds = [each["kind"] for each in document["residuals"]]
    assert kinds.count("decode") == 30  # 6 shapes at 5 points
    assert all(each["measured_s"] > 0 and each["forecast_s"] > 0 for each in document["residuals"])


def test_residuals_are_drawn(roofcast, calibration: Calibration, tmp_path: Path) -> None:
    status, _, err = roofcast("calibrate", "show", calibration.path, "--figures", tmp_path / "f")
    assert status == 0
    assert "residuals-kernels.png" in err
    assert {path.name for path in (tmp_path / "f").iterdir()} == {
        f"residuals-{what}.{kind}" for what in ("kernels", "decode-runs") for kind in ("png", "svg")
    }


def test_figures_without_samples_are_refused(roofcast, calibration: Calibration) -> None:
    calibration.journal.unlink()
    status, _, err = roofcast("calibrate", "show", calibration.path, "--figures", "f")
    assert status == 2
    assert "raw samples must lie beside it" in err


def test_calibrations_are_merged_and_forecast_better(roofcast, tmp_path: Path) -> None:
    """The samples of both count: each task has ten instead of five."""
    one, two = calibrated(tmp_path / "a.json", 1), calibrated(tmp_path / "b.json", 1)
    status, out, _ = roofcast("calibrate", "merge", one, two, "--out", tmp_path / "both.json", "-j")
    assert status == 0
    assert json.loads(out)["profile"] == str(tmp_path / "both.json")
    lines = journal_path(tmp_path / "both.json").read_text().splitlines()
    assert any(len(json.loads(line)["samples_s"]) == 10 for line in lines[1:])


def test_unlike_conditions_do_not_merge(roofcast, tmp_path: Path) -> None:
    one = calibrated(tmp_path / "a.json", 1)
    two = calibrated(tmp_path / "b.json", 2, torch="2.10.0")
    status, _, err = roofcast("calibrate", "merge", one, two, "--out", tmp_path / "both.json")
    assert status == 2
    assert "torch was 2.9.0 and 2.10.0" in err
    assert not (tmp_path / "both.json").exists()


def test_profiles_of_devices_that_nobody_knows_do_not_merge(roofcast, tmp_path, monkeypatch):
    one, two = calibrated(tmp_path / "a.json", 1), calibrated(tmp_path / "b.json", 2)
    h100 = catalog.find("h100-sxm")
    monkeypatch.setattr(calibrate_results, "attached", lambda prefer: h100)
    status, _, err = roofcast("calibrate", "merge", one, two, "--out", tmp_path / "both.json")
    assert status == 2
    assert "neither this machine nor in the catalogue" in err


def test_a_diff_says_what_changed_beyond_noise(roofcast, tmp_path: Path) -> None:
    before = calibrated(tmp_path / "a.json", 1)
    after = calibrated(tmp_path / "b.json", 2, torch="2.10.0", slower=1.3)
    status, out, _ = roofcast("calibrate", "diff", before, after)
    assert status == 0
    assert "attention takes" in out.splitlines()[0]
    assert "more time" in out.splitlines()[0]
    assert "2.10.0" in out
    document = json.loads(roofcast("calibrate", "diff", before, after, "--json")[1])
    changed = {each["kind"]: each["changed"] for each in document["kinds"]}
    assert changed["attention"]
    assert not changed["gemm"]


def test_a_diff_of_a_profile_with_itself_finds_nothing(roofcast, tmp_path: Path) -> None:
    one = calibrated(tmp_path / "a.json", 1)
    first = roofcast("calibrate", "diff", one, one)[1].splitlines()[0]
    assert "No kind of measurement differs" in first
    assert "agree within three standard errors" in first
