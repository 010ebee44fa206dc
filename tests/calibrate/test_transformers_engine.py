"""transformers' generate as an engine: timed token by token, fitted on top of known kernels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from roofcast.calibrate import transformers_engine as engine  # noqa: E402
from roofcast.calibrate.calibration import journal_path  # noqa: E402
from roofcast.calibrate.fit import fit_kernels, with_values  # noqa: E402
from roofcast.calibrate.journal import Header, Journal  # noqa: E402
from roofcast.calibrate.overheads import forecast_s  # noqa: E402
from roofcast.calibrate.samples import Measurement, Task  # noqa: E402
from roofcast.hardware.errors import InputError  # noqa: E402
from tests.calibrate.simulated import DEVICE, simulated  # noqa: E402

FIELDS = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
}


@pytest.fixture
def subject(tmp_path: Path) -> engine.Subject:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(FIELDS))
    return engine.Subject.read(tmp_path / "tiny", "bf16")


def test_every_token_after_the_second_is_a_sample(
    subject: engine.Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_EFFORT", engine.Effort(budget_s=1e-9, least=1))
    model = engine.make_model(subject, torch.device("cpu"), "fp32")
    task = Task("generate", {"model": "tiny", "batch": 2, "context": 8, "dtype": "fp32"})
    timing = engine.time_generate(model, task)
    assert len(timing.samples_s) == 12 - 2
    assert min(timing.samples_s) > 0


def test_the_model_is_the_one_of_the_config(subject: engine.Subject) -> None:
    model = engine.make_model(subject, torch.device("cpu"), "bf16")
    assert subject.name == "tiny"
    assert sum(p.numel() for p in model.parameters()) == subject.architecture.parameters


def test_long_prompts_are_for_small_batches(subject: engine.Subject) -> None:
    points = {
        (task.facts["batch"], task.facts["context"])
        for task in engine.generate_tasks(subject, "bf16", quick=False)
    }
    assert (1, 2048) in points
    assert (2, 2048) in points
    assert (4, 2048) not in points


def test_scales_and_host_costs_are_recovered(subject: engine.Subject, tmp_path: Path) -> None:
    """Matrix products 1.4 times, attention 3 times as slow as torch's, 5 ms a step, 3 % noise."""
    kernels = fit_kernels(DEVICE, engine.ENGINE, simulated(0, outliers=0.0), "simulation")
    large = engine.Subject("large", {}, _large())
    true = {"gemm.scale": 1.4, "attention.scale": 3.0, "host.step_s": 5e-3}
    random = np.random.default_rng(0)
    written = Journal.create(
        journal_path(tmp_path / "p.json"), Header(DEVICE.id, engine.ENGINE, "x", "now")
    )
    for task in engine.generate_tasks(large, "bf16", quick=False):
        (runs,) = engine.generate_runs(large, [Measurement(task.kind, task.facts, (1.0,))])
        expected = forecast_s(runs, DEVICE, with_values(kernels.profile, true))[0]
        seconds = float(expected * np.exp(random.normal(0, 0.03)))
        written.add(Measurement(task.kind, task.facts, (seconds,), others=0.0))
    found = engine.finish(large, kernels, written, tmp_path / "p.json")
    assert found.profile.engine == "transformers"
    for name, value in true.items():
        parameter = found.profile.parameters[name]
        assert parameter.standard_error is not None
        assert abs(parameter.value - value) < 3 * parameter.standard_error + 0.02 * value
    (judged,) = found.profile.held_out
    assert judged.scheme == "leave-one-context-out"
    assert judged.median_ape < 0.04


def _large() -> engine.Architecture:
    from roofcast.simulator.models import load

    return load("smollm2-360m")


def test_kernels_must_be_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path))
    with pytest.raises(InputError, match="run `roofcast calibrate` first"):
        engine.known_kernels(DEVICE)
