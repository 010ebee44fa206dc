"""Formats put on an architecture, and what-ifs."""

import pytest

from roofcast.hardware.errors import UnknownNameError
from roofcast.simulator.families import registry
from roofcast.simulator.formats import BF16, FP32
from roofcast.simulator.quantization import apply, quantization, requantise

MOE = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1000,
    "mlp_only_layers": [1],
    "tie_word_embeddings": False,
}


@pytest.fixture
def plain():
    return registry.parse(MOE, "test")[0]


def formats(architecture, part):
    found = {w.format.name for w in architecture.weights() if w.part == part}
    if part == "experts":
        stacks = (layer.experts for layer in architecture.layers if layer.experts)
        found = {w.format.name for stack in stacks for w in stack.weights}
    return found


def test_layers_are_excluded_by_their_number(plain):
    block = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "model.layers.0*", "model.layers.2.mlp.experts.*"],
    }
    made = apply(plain, quantization({"quantization_config": block}))
    queries = [layer.weights[0].format.name for layer in made.layers]
    assert queries == ["bf16", "nvfp4", "nvfp4", "nvfp4"]
    stacks = [layer.experts and layer.experts.weights[0].format.name for layer in made.layers]
    assert stacks == ["bf16", None, "bf16", "nvfp4"]
    for part in ("router", "norms", "lm_head", "embeddings"):
        assert formats(made, part) == {"bf16"}


def test_paths_and_counts_survive(plain):
    made = apply(plain, quantization({"quantization_config": {"quant_method": "fp8"}}))
    assert made.parameters == plain.parameters
    assert [w.path for w in made.weights()] == [w.path for w in plain.weights()]
    pairs = zip(made.layers, plain.layers, strict=True)
    for ours, theirs in pairs:
        if theirs.experts:
            assert [w.path for w in ours.experts.weights] == [
                w.path for w in theirs.experts.weights
            ]


def test_equal_layers_stay_equal_so_that_a_sweep_costs_one_of_each(plain):
    made = apply(plain, quantization({"quantization_config": {"quant_method": "fp8"}}))
    assert made.layers[2] == made.layers[3]


def test_nothing_to_apply_changes_nothing(plain):
    assert apply(plain, quantization(MOE)) == plain


def test_the_checkpoints_cache_dtype_is_kept(plain):
    side = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    assert apply(plain, quantization(MOE, side)).kv_dtype == "fp8"


def test_a_what_if_leaves_head_tables_routers_and_norms(plain):
    made = requantise(plain, "int4")
    assert (
        formats(made, "attention") == formats(made, "mlp") == formats(made, "experts") == {"int4"}
    )
    for part in ("router", "norms", "lm_head", "embeddings"):
        assert formats(made, part) == {"bf16"}


def test_a_plain_float_type_goes_for_everything(plain):
    eight = apply(plain, quantization({"quantization_config": {"quant_method": "fp8"}}))
    assert requantise(eight, "bf16") == requantise(plain, "bf16")
    assert {w.format for w in requantise(eight, "bf16").weights()} == {BF16}
    assert {w.format for w in requantise(plain, "fp32").weights()} == {FP32}
    assert requantise(plain, "fp32").weight_bytes == 2 * plain.weight_bytes


@pytest.mark.parametrize("smaller", ["fp8", "nvfp4", "awq", "q4_k_m", "q8_0"])
def test_fewer_bits_are_fewer_bytes(plain, smaller):
    assert requantise(plain, smaller).weight_bytes < plain.weight_bytes


def test_an_unknown_what_if_names_the_nearest(plain):
    with pytest.raises(UnknownNameError, match="did you mean 'q4_k'"):
        requantise(plain, "q4_kx")
