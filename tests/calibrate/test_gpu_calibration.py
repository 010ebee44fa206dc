"""The command for a lent GPU: modes share the time, one that fails is left out, a folder is written."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from roofcast.calibrate import gpu_calibration
from roofcast.calibrate.calibration import Calibration
from roofcast.hardware.errors import MeasurementError
from roofcast.hardware.profile import HeldOut, Profile

ROOT = Path(__file__).parents[2]


def pretend(failing: str = "") -> Any:
    """A calibration that takes no time, and the arguments it was called with."""
    calls: list[dict[str, Any]] = []

    def calibrate(device: str, **options: Any) -> Calibration:
        calls.append({"device": device, **options})
        if options["mode"] == failing:
            raise MeasurementError("only 0 decode runs were measured")
        errors = HeldOut("held-out models", 60, 0.03, 0.08, 0.01, 0.8)
        profile = Profile("gpu", "gpu", "torch", "", held_out=(errors,), warnings=("hot",))
        return Calibration(profile, options["out"], options["out"], ())

    return calibrate, calls


def test_modes_share_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calibrate, calls = pretend()
    monkeypatch.setattr(gpu_calibration, "calibrate", calibrate)
    assert gpu_calibration.main([str(tmp_path), "--minutes", "8"]) == 0
    assert [call["mode"] for call in calls] == ["graph", "eager"]
    assert calls[0]["budget_s"] == pytest.approx(240, abs=1)
    assert calls[1]["budget_s"] == pytest.approx(480, abs=1)  # the first took no time
    assert calls[0]["out"] == tmp_path / "torch-graph.json"
    text = (tmp_path / "summary.txt").read_text()
    assert "held-out models: 60 runs, median 3.0%, p90 8.0%, signed +1.0%, coverage 80%" in text
    assert "warning: hot" in text
    assert json.loads(text.splitlines()[-1])["graph"]["held_out"]["runs"] == 60


def test_a_mode_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_calibration, "calibrate", pretend("graph")[0])
    assert gpu_calibration.main([str(tmp_path)]) == 0
    assert "failed: graph: only 0 decode runs" in (tmp_path / "summary.txt").read_text()


def test_nothing_measured_is_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_calibration, "calibrate", pretend("eager")[0])
    assert gpu_calibration.main([str(tmp_path), "--device", "cpu"]) == 1
    assert capsys.readouterr().err == "eager: only 0 decode runs were measured\n"


def test_the_script_explains_itself() -> None:
    asked = subprocess.run(
        ["bash", str(ROOT / "calibrate" / "bare_gpu.sh")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert asked.returncode == 2
    assert "bare_gpu.sh run FOLDER OUT" in asked.stderr
