"""The whole quickstart on a simulated machine: what it says, what it draws, what it writes."""

import json
import re

import pytest

from roofcast.reports import quickstart as parts
from roofcast.reports.commands import quickstart as command
from tests.calibrate.simulated import DEVICE

FIGURES = (
    "1-accuracy",
    "2-roofline",
    "3-throughput",
    "4-latency",
    "5-roofline-gpu",
    "6-throughput-gpus",
    "7-breakdown-gpus",
)


@pytest.fixture
def simulated_machine(monkeypatch, calibration):
    """Measuring gives a simulated machine's runs at once."""

    def measure(device, *, quick, resume, listener):
        assert quick
        return calibration

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(parts, "find_device", lambda name: DEVICE)


def test_it_says_what_holds_decode_back_and_how_far_it_errs(roofcast, simulated_machine, tmp_path):
    status, out, err = roofcast("quickstart", "--out", "figures")
    assert (status, err) == (0, "")
    assert re.search(
        r"Decode of smollm2-360m at batch 1 on Simulated CPU is [\w-]+-bound.*; batching pays ", out
    )
    assert re.search(
        r"\nHeld-out error of cpu-simulated: median [\d.]+ %, p90 [\d.]+ % on \d+ runs it had not seen "
        r"\(held-out models\)\.\n$",
        out,
    )
    rows = [line.split()[:4] for line in out.splitlines() if line.startswith("llama-3.1-")]
    assert [row[0] for row in rows] == ["llama-3.1-8b"] * 4 + ["llama-3.1-70b"] * 4
    assert [row[1] for row in rows[:4]] == ["h100-sxm-80gb", "h200-sxm", "b200-sxm", "mi300x"]
    # 141 GB of weights and 86 GB of cache: more than any of them, less than two H200, four H100.
    assert {row[2] for row in rows} == {"vllm"}
    assert [row[3] for row in rows] == ["1", "1", "1", "1", "4", "2", "2", "2"]
    for name in FIGURES:
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 10_000
        assert (tmp_path / "figures" / f"{name}.svg").read_text().startswith("<?xml")


def test_json_holds_forecasts_verdicts_and_figures(roofcast, simulated_machine, tmp_path):
    _, out, _ = roofcast("quickstart", "--json")
    document = json.loads(out)
    assert document["held_out"]["runs"] > 5
    assert len(document["forecasts"]) == len(document["verdicts"]) == 9
    assert len(document["figures"]) == 2 * len(FIGURES)
    assert all((tmp_path / name).exists() for name in document["figures"])
    assert all(" is " in verdict and verdict.endswith(".") for verdict in document["verdicts"])
