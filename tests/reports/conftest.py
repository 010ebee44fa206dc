"""A model, a profile and an empty profile folder for commands to work on."""

import json
from pathlib import Path

import pytest

from roofcast.calibrate.calibration import Calibration, finish
from roofcast.calibrate.journal import Header, Journal
from roofcast.hardware.profile import Band, HeldOut, Parameter, Profile
from roofcast.hardware.profile_store import write
from roofcast.reports.cli import run
from tests.calibrate.simulated import DEVICE, simulated

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
"""meta-llama/Llama-3.1-8B: 8,030,261,248 parameters."""


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """Commands run in an empty folder, with no profiles but the shipped ones."""
    monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path / "profiles"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def llama(tmp_path) -> str:
    path = tmp_path / "llama.json"
    path.write_text(json.dumps(LLAMA_8B))
    return str(path)


def fitted(value: float, unit: str = "") -> Parameter:
    return Parameter(value, unit, "fitted", 0.01)


PROFILE = Profile(
    name="h100-test",
    device="h100-sxm-80gb",
    engine="vllm",
    origin="made for a test",
    parameters={
        "gemm.bandwidth_efficiency": fitted(0.8),
        "gemm.compute_efficiency": fitted(0.7),
        "attention.bandwidth_efficiency": fitted(0.7),
        "host.step_s": fitted(0.5e-3, "s"),
    },
    valid_range={"batch": (1, 64), "context": (128, 8192)},
    held_out=(HeldOut("leave-one-model-out", 40, 0.05, 0.11, -0.01, 0.8),),
    band=Band(-0.1, 0.2, "80 % of 40 decode runs"),
    created="2026-01-31T12:00:00+00:00",
)


@pytest.fixture
def profile_file(tmp_path) -> str:
    return str(write(PROFILE, tmp_path / "h100.json"))


@pytest.fixture
def calibration(tmp_path) -> Calibration:
    """A quick calibration of a simulated machine: a fit to its noisy runs."""
    header = Header(
        DEVICE.id, "torch", "simulated", "2026-01-31T12:00:00+00:00", conditions={"threads": 2.0}
    )
    journal = Journal.create(tmp_path / "sim.samples.jsonl", header)
    for measurement in simulated(0):
        journal.add(measurement)
    return finish(DEVICE, journal, tmp_path / "sim.json")


@pytest.fixture
def roofcast(capsys):
    """Run a command line; returns exit status, standard output and standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call
