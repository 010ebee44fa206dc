"""Which modules the patterns of real configs cover. Each case is written as some checkpoint does."""

import pytest

from roofcast.hardware.errors import InputError
from roofcast.simulator.quantization import patterns

EXPERT = "model.layers.3.mlp.experts.*.up_proj"


@pytest.mark.parametrize(
    ("entry", "path", "covered"),
    [
        ("lm_head", "lm_head", True),
        ("model.layers.1.mlp.gate", "model.layers.1.mlp.gate", True),
        ("model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj", False),
        ("model.layers.1.mlp.gate", "model.layers.11.mlp.gate", False),
        ("model.layers.1", "model.layers.1.self_attn.q_proj", True),
        ("model.layers.1", "model.layers.10.self_attn.q_proj", False),
        ("gate", "model.layers.4.block_sparse_moe.gate", True),  # MiniMax-M2.5
        ("gate", "model.layers.4.block_sparse_moe.experts.*.w1", False),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.o_proj", True),  # gpt-oss
        ("model.layers.*.mlp.router", "model.layers.7.mlp.router", True),
        ("model.layers.*.self_attn", EXPERT, False),
        ("model.vision_tower", "model.layers.7.self_attn.o_proj", False),
        # GLM-5-FP8 names the indexer's weights_proj so:
        ("model.layers.5.self_attn.indexers_proj", "layers.5.self_attn.indexer.weights_proj", True),
        ("layer.*", "layer.3.attn", True),
        (r"model\.layers\.(0|1)\.mlp", "model.layers.1.mlp.up_proj", True),
        (r"model\.layers\.(0|1)\.mlp", "model.layers.2.mlp.up_proj", False),
    ],
)
def test_module_names(entry, path, covered):
    assert patterns.modules([entry]).cover(path) is covered


@pytest.mark.parametrize(
    ("entry", "path", "covered"),
    [
        ("model.layers.0*", "model.layers.0.mlp.up_proj", True),
        ("model.layers.1.*", "model.layers.1.mlp.up_proj", True),
        ("model.layers.1.*", "model.layers.12.mlp.up_proj", False),
        ("model.layers.7*", "model.layers.78.eh_proj", True),  # fnmatch knows no boundary
        ("language_model.model.layers.5.self_attn*", "model.layers.5.self_attn.kv_b_proj", True),
        ("language_model.lm_head", "lm_head", True),
        ("model.language_model.layers.2.mlp*", "model.layers.2.mlp.down_proj", True),
        # Gemma-4 26B: the dense MLP is excluded, the experts beside it are not.
        ("model.language_model.layers.2.mlp*", "model.layers.2.experts.*.down_proj", False),
        ("model.language_model.layers.2.router*", "model.layers.2.router.proj", True),
        (
            "model.language_model.layers.2.mlp.shared_expert*",
            "layers.2.mlp.shared_expert_gate",
            True,
        ),
        ("*.mlp.shared_expert.*", "model.layers.9.mlp.shared_expert.up_proj", True),
        ("*.mlp.shared_expert.*", "model.layers.9.mlp.shared_expert_gate", False),
        ("*.attn.*", "layers.9.attn.wq_b", True),  # DeepSeek-V4
        ("*.attn.*", "model.layers.9.self_attn.q_b_proj", True),
        ("*.ffn.shared_experts.*", "model.layers.9.mlp.shared_experts.up_proj", True),
        ("head", "lm_head", True),
        ("mtp.layers.0*", "model.layers.0.mlp.up_proj", False),
        ("mtp*", "mtp.layers.0.self_attn.q_proj", True),
        ("model.visual*", "model.layers.0.mlp.up_proj", False),
        ("layers.3.ffn.experts", EXPERT, True),
        ("model.layers.3.mlp.experts.*", EXPERT, True),
        ("model.layers.3.mlp.experts.0.*", EXPERT, False),
    ],
)
def test_globs(entry, path, covered):
    assert patterns.globs([entry]).cover(path) is covered


@pytest.mark.parametrize(
    ("entry", "path", "covered"),
    [
        ("lm_head", "lm_head", True),
        ("re:.*self_attn.*", "model.layers.0.self_attn.q_proj", True),
        # Kimi-K2.5: the dense layer's MLP is meant, experts and shared experts are not.
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "model.layers.0.mlp.gate_proj", True),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", EXPERT, False),
        (r"re:.*mlp\.(gate|up)_proj", "model.layers.0.mlp.shared_experts.up_proj", False),
        # RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8, written in vLLM's fused names.
        ("re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$", "layers.2.attn.wq_a", True),
        ("re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$", "layers.2.attn.fused_wqa_wkv", True),
        ("re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$", "layers.2.attn.indexer.wq_b", True),
        ("re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$", "layers.2.attn.compressor.wkv", False),
        ("re:.*ffn.*(gate|up|down)_proj$", "layers.2.ffn.experts.*.gate_proj", True),
        ("re:.*ffn.*(gate|up|down)_proj$", "model.layers.2.mlp.shared_experts.up_proj", True),
        ("re:.*ffn.*(gate|up|down)_proj$", "layers.2.ffn.gate", False),
        ("re:^model.layers.2.*", "model.layers.2.mlp.up_proj", True),
        (r"re:.*experts\.\d+\.up_proj", EXPERT, True),
        (r"re:.*experts\.1\.up_proj", EXPERT, False),
        ("re:.*block_sparse_moe.gate", "model.layers.3.block_sparse_moe.gate", True),
    ],
)
def test_compressed_tensors_names(entry, path, covered):
    assert patterns.prefixed([entry]).cover(path) is covered


def test_expressions_that_name_a_layer_are_tried_on_that_layer():
    only_last = patterns.prefixed([r"re:.*layers\.61\..*"])
    assert only_last.cover("model.layers.61.mlp.up_proj")
    assert not only_last.cover("model.layers.60.mlp.up_proj")


def test_a_list_of_every_expert_covers_the_stack_and_a_list_of_some_does_not():
    names = [f"model.layers.3.mlp.experts.{i}.up_proj" for i in range(8)]
    assert patterns.globs(names).cover(EXPERT)
    assert not patterns.globs(names).cover("model.layers.3.mlp.experts.*.down_proj")
    some = patterns.globs([names[1], names[5]])
    assert not some.cover(EXPERT)
    assert some.uneven == ("layers.3.mlp.experts.*.up_proj",)


def test_autoawq_takes_any_part_of_a_name():
    # AutoAWQ: any(key in name for key in modules_to_not_convert).
    assert patterns.pieces(["gate"]).cover("model.layers.0.block_sparse_moe.gate")
    assert not patterns.pieces(["visual"]).cover("model.layers.0.mlp.up_proj")


def test_a_broken_expression_is_an_input_error():
    with pytest.raises(InputError, match=r"'\(' is not a regular expression"):
        patterns.prefixed(["re:("])
