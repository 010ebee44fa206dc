"""Bundled models, names, folders and the Hub; and counts worked by hand or published."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from roofcast.hardware.errors import InputError, UnknownNameError
from roofcast.simulator import hub
from roofcast.simulator.architecture import AttentionCore, LatentCore
from roofcast.simulator.cache import (
    kv_bytes_per_token,
    kv_bytes_per_token_beyond_windows,
    state_bytes_per_sequence,
)
from roofcast.simulator.models import bundled, bundled_names, from_fields, load

# Parameters as published on the models' pages or in their reports, in full.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-1b": 999_885_952,
    "gpt2": 124_439_808,
    "gpt-oss-20b": 20_914_757_184,
    "opt-6.7b": 6_658_473_984,
    "phi-4": 14_659_507_200,
    "tinyllama-1.1b": 1_100_048_384,
    "deepseek-v2-lite": 15_706_484_224,
    "smollm2-135m": 134_515_008,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_published_parameters(name: str, parameters: int) -> None:
    assert load(name).parameters == parameters


@pytest.mark.parametrize("name", bundled())
def test_every_bundled_model_loads_under_its_own_name_and_says_its_source(name: str) -> None:
    model = load(name)
    assert model.name == name
    assert model.parameters > 1e8
    assert model.weight_bytes > 0
    assert kv_bytes_per_token(model) > 0
    file = Path(__file__).parents[2] / "simulator" / "bundled" / f"{name}.json"
    assert json.loads(file.read_text())["_source"]


@pytest.mark.parametrize(
    "spelling",
    [
        "llama-3.1-8b",
        "Llama-3.1-8B",
        "LLAMA 3.1 8b",
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "Llama-3.1-8B-Instruct",
    ],
)
def test_names_forgive_case_and_punctuation(spelling: str) -> None:
    assert load(spelling).name == "llama-3.1-8b"


def test_no_two_bundled_models_answer_to_one_name() -> None:
    assert set(bundled_names().values()) == set(bundled())


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'llama-3\.1-9b'.*llama-3\.1-8b"):
        load("llama-3.1-9b")


def test_llama_3_70b_keeps_320_kib_a_token() -> None:
    # 80 layers x (key + value) x 8 KV heads x 128 x 2 bytes
    assert kv_bytes_per_token(load("llama-3.1-70b")) == 80 * 2 * 8 * 128 * 2 == 327_680
    assert kv_bytes_per_token(load("llama-3.1-70b"), "fp8") == 163_840


def test_deepseek_v3_as_its_report_counts_it() -> None:
    model = load("deepseek-v3")
    assert model.parameters == pytest.approx(671e9, rel=1e-3)
    # The report's 37 B leave out the input embeddings (129,280 x 7,168).
    assert model.active_parameters - 129_280 * 7_168 == pytest.approx(37e9, rel=0.02)
    assert kv_bytes_per_token(model) == 61 * (512 + 64) * 2 == 70_272
    assert isinstance(model.layers[0].cores[0], LatentCore)
    # 14 B of multi-token prediction, less the embedding and head it shares: about 11.5 B.
    experts = sum(stack.parameters for stack in model.mtp_experts)
    mtp = experts + sum(weight.parameters for weight in model.mtp)
    assert mtp == pytest.approx(14e9 - 2 * 129_280 * 7_168, rel=0.05)


def test_gpt_oss_120b_has_every_other_layer_in_a_window_of_128() -> None:
    model = load("gpt-oss-120b")
    windows = [core.window for layer in model.layers for core in layer.cores if _is_gqa(core)]
    assert windows == [128, None] * 18
    assert kv_bytes_per_token(model) == 36 * 2 * 8 * 64 * 2 == 73_728
    assert kv_bytes_per_token_beyond_windows(model) == 36_864
    # The model card: 116.8 B in all, 5.1 B active without the input embedding.
    assert model.parameters == pytest.approx(116.8e9, rel=1e-3)
    assert model.active_parameters - 201_088 * 2_880 == pytest.approx(5.1e9, rel=0.01)
    # The model card: 60.8 GiB on disk in MXFP4.
    assert model.weight_bytes == pytest.approx(60.8 * 2**30, rel=0.005)


def _is_gqa(core: object) -> bool:
    return isinstance(core, AttentionCore)


def test_qwen3_next_states_do_not_grow() -> None:
    model = load("qwen3-next-80b-a3b")
    # 36 delta-rule layers: 32 heads x 128 x 128 fp32 and 8,192 channels x 4 columns bf16.
    assert state_bytes_per_sequence(model) == 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)


def test_float16_files_are_stored_as_they_say() -> None:
    fields: dict[str, Any] = {
        "model_type": "opt",
        "hidden_size": 768,
        "ffn_dim": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
    }
    half = from_fields({**fields, "torch_dtype": "float16"}, name="x")
    whole = from_fields({**fields, "torch_dtype": "float32"}, name="x")
    assert half.parameters == 125_239_296  # OPT-125m as published
    assert half.weight_bytes == 2 * half.parameters
    assert whole.dtype == "fp32"
    assert whole.weight_bytes > 1.99 * half.weight_bytes


def test_a_folder_is_its_config_with_the_side_file(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "simulator" / "bundled" / "qwen3-0.6b.json"
    (tmp_path / "config.json").write_text(source.read_text())
    plain = load(tmp_path)
    assert plain.name == tmp_path.name
    assert load(tmp_path / "config.json") == plain
    side = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(side))
    quantised = load(tmp_path)
    assert quantised.kv_dtype == "fp8"
    assert quantised.weight_bytes < 0.8 * plain.weight_bytes
    assert quantised.parameters == plain.parameters


def test_a_side_file_may_stand_beside_a_named_config(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "simulator" / "bundled" / "qwen3-0.6b.json"
    (tmp_path / "mine.json").write_text(source.read_text())
    side = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "mine_hf_quant_config.json").write_text(json.dumps(side))
    assert load(tmp_path / "mine.json").kv_dtype == "fp8"


class TestHub:
    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = builtins.__import__

        def absent(name: str, *rest: Any) -> Any:
            if name.startswith("huggingface_hub"):
                raise ImportError(name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", absent)
        with pytest.raises(InputError, match=r"pip install 'roofcast\[hub\]'"):
            load("nobody/nothing-1b")

    def test_without_network_and_cache(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        pytest.importorskip("huggingface_hub")
        monkeypatch.setattr(hub, "_reachable", lambda endpoint: False)
        with pytest.raises(InputError, match="Hub cannot be reached, and its cache does not"):
            load("nobody/nothing-1b")

    def test_from_the_cache_without_network(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        huggingface_hub = pytest.importorskip("huggingface_hub")
        source = Path(__file__).parents[2] / "simulator" / "bundled" / "qwen3-0.6b.json"
        (tmp_path / "config.json").write_text(source.read_text())

        def cached(model: str, file: str) -> str | None:
            assert model == "nobody/nothing-1b"
            return str(tmp_path / file) if file == "config.json" else None

        monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
        model = load("nobody/nothing-1b")
        assert model.name == "nobody/nothing-1b"
        assert model.parameters == 596_049_920
