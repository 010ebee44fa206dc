"""What sources leave unsaid: engines, lengths, launch options, formats."""

from pathlib import Path

import pytest

from roofcast.calibrate.serving_points import conventions, weights
from roofcast.calibrate.serving_points.points import Point
from roofcast.hardware.errors import UnknownNameError
from roofcast.simulator.engines import find_engine

INFERENCEX = "request lengths uniform in [0.8,1.0] x nominal ISL/OSL (random-range-ratio 0.8)"
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def point(**fields) -> Point:
    given = {"id": "p", "source": "s", "model": "m", "gpu": "h200_sxm", "engine": "vllm"}
    return Point(**{**given, "load_mode": "closed_loop", **fields})


def config(folder: Path, fields: dict) -> Path:
    import json

    path = folder / "owner--model.json"
    path.write_text(json.dumps(fields))
    return path


@pytest.mark.parametrize(
    ("engine", "source", "gpu", "expected"),
    [
        ("vllm", "aiconfigurator", "h200_sxm", ("vllm", "vllm", False)),
        ("vllm", "Argonne LLM-Inference-Bench", "h100_sxm", ("vllm-0", "vllm", False)),
        ("vllm", "Argonne LLM-Inference-Bench", "mi300x", ("vllm-rocm-0", None, False)),
        ("tensorrt-llm", "anyone", "h100_sxm", ("trtllm", "trtllm", False)),
        ("exllamav2", "anyone", "rtx4090", ("llama.cpp", None, True)),
    ],
)
def test_engines_are_those_of_their_time(engine, source, gpu, expected):
    found = conventions.engine_of(point(engine=engine, source=source, gpu=gpu))
    assert (found.engine, found.kernels, found.nearest) == expected


def test_an_engine_without_a_stand_in_is_named():
    with pytest.raises(UnknownNameError, match="abacus"):
        conventions.engine_of(point(engine="abacus"))


@pytest.mark.parametrize(
    ("version", "fused", "expected"),
    [
        ("0.5.9", False, "sglang-0.5.9"),
        ("0.5.6.post2", False, "sglang-0.5.9"),
        ("v0.4.6", False, "sglang-0.5.9"),
        ("nightly-dev", True, "sglang-0.5.9-fused"),
        ("nightly-dev-20260402-d7256eb6", True, "sglang-fused"),
        ("0.5.10.post1", True, "sglang-fused"),
        ("", False, "sglang"),
    ],
)
def test_kernels_are_counted_by_version(version, fused, expected):
    """SGLang's pull requests 20627 and 21019 (March 2026) came with 0.5.10."""
    there = point(engine="sglang", engine_version=version)
    assert conventions.counts_of(there, "sglang", fused) == expected
    assert conventions.counts_of(there, "vllm", fused).startswith("vllm")


def test_an_older_version_differs_in_what_it_states_alone():
    """z, a, b; convolution; copies of q, k, v; update; norm: nine launches a mixer, then four."""
    old, new = find_engine("sglang-0.5.9-fused"), find_engine("sglang-fused")
    assert (old.state, new.state) == (9, 4)
    assert (old.norm_fused, old.token_budget, old.route) == (True, new.token_budget, new.route)


def test_lengths_are_uniform_only_where_the_source_says_so():
    assert conventions.lengths_of(point(notes=INFERENCEX)).low == 0.8
    assert conventions.lengths_of(point()).low == 1.0


def test_launch_options_follow_the_scripts_by_date_and_shape():
    """InferenceX gave MiniMax on B200 an fp8 cache in April 2026; Qwen3.5 rarely looks at the queue."""
    given = {
        "notes": INFERENCEX,
        "model": "MiniMaxAI/MiniMax-M2.5",
        "gpu": "b200_sxm",
        "isl": 1024.0,
    }
    early = conventions.recipe_of(point(**given, measured_on="2026-03-28"))
    late = conventions.recipe_of(point(**given, measured_on="2026-04-03"))
    assert (early.kv_dtype, late.kv_dtype) == ("bf16", "fp8")
    assert late.token_budget == 2048
    hybrid = {"notes": INFERENCEX, "model": "Qwen/Qwen3.5-397B-A17B", "engine": "sglang"}
    few = conventions.recipe_of(point(**hybrid, gpu="b200_sxm", concurrency=4.0))
    many = conventions.recipe_of(point(**hybrid, gpu="b200_sxm", concurrency=64.0))
    assert (few.poll_steps, many.poll_steps) == (10, 30)


def test_a_script_that_always_spreads_experts_overrules_the_point():
    """minimaxm2.5_fp8_h200.sh asks whether EP_SIZE is at least 1 from 2026-03-13 on; it always is."""
    given = {"notes": INFERENCEX, "model": "MiniMaxAI/MiniMax-M2.5", "gpu": "h200_sxm"}
    before = conventions.recipe_of(point(**given, measured_on="2026-03-12"))
    after = conventions.recipe_of(point(**given, measured_on="2026-03-13"))
    assert (before.expert_parallel, after.expert_parallel) == (False, True)


def test_a_layout_that_only_drafting_runs_have_is_taken_for_one():
    """nvidia-master.yaml has Qwen3.5 in fp8 on B200 at TP 4, EP 1 under spec-decoding: mtp alone."""
    given = {
        "notes": INFERENCEX, "model": "Qwen/Qwen3.5-397B-A17B", "engine": "sglang",
        "gpu": "b200_sxm", "weight_dtype": "moe=fp8_block,gemm=fp8", "tp": 4.0,
    }  # fmt: skip
    drafting = conventions.recipe_of(point(**given, ep=1.0)).speculation
    assert drafting is not None
    assert drafting.tokens == 3
    assert conventions.recipe_of(point(**given, ep=4.0)).speculation is None


def test_without_a_script_nothing_is_assumed():
    assert conventions.recipe_of(point(model="openai/gpt-oss-120b")) == conventions.Recipe()


def test_a_checkpoint_that_states_its_format_is_taken_at_its_word(tmp_path):
    block = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    path = config(tmp_path, {**LLAMA, "quantization_config": block})
    layer = weights.stored(path, "fp8").layers[0]
    assert {w.format.name for w in layer.weights if w.use == "matmul"} == {"fp8_block"}


def test_per_tensor_fp8_has_static_scales_where_nothing_else_is_known(tmp_path):
    layer = weights.stored(config(tmp_path, LLAMA), "fp8").layers[0]
    formats = {w.format for w in layer.weights if w.use == "matmul"}
    assert {(f.name, f.activations) for f in formats} == {("fp8", "static")}


@pytest.mark.parametrize("word", ["fp8_block", "moe=fp8_block,gemm=fp8"])
def test_fp8_in_blocks_scales_inputs_as_they_come(tmp_path, word):
    """Qwen's own fp8 checkpoints have weight_block_size [128, 128] for products and experts alike."""
    layer = weights.stored(config(tmp_path, LLAMA), word).layers[0]
    formats = {w.format for w in layer.weights if w.use == "matmul"}
    assert {(f.name, f.activations) for f in formats} == {("fp8_block", "dynamic")}


def test_a_word_nobody_uses_for_weights_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match="fp7"):
        weights.stored(config(tmp_path, LLAMA), "fp7")


def test_a_dense_nvfp4_checkpoint_keeps_its_head(tmp_path):
    stored = weights.stored(config(tmp_path, LLAMA), "nvfp4")
    assert {w.format.name for w in stored.layers[0].weights if w.use == "matmul"} == {"nvfp4"}
    assert {w.format.name for w in stored.head if w.use == "matmul"} == {"bf16"}
    assert stored.kv_dtype == "fp8"
