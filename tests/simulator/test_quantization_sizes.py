"""Sizes of published checkpoints, computed from their configs alone.

The truth is what the files hold. `index` means metadata.total_size of the model.safetensors.index.json
or the sum over all safetensors headers, both of tensor bytes alone; `files` the size of the files,
headers included.
"""

import pytest

from roofcast.simulator.families import registry
from roofcast.simulator.quantization import apply, quantization


def model(fields, block=None, side=None):
    config = fields | ({"quantization_config": block} if block else {})
    architecture, _ = registry.parse(config, "test")
    return apply(architecture, quantization(config, side))


def llama(layers, hidden, width, heads, kv_heads=8, vocab=128256):
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    }


LLAMA_8B = llama(32, 4096, 14336, 32)
LLAMA_70B = llama(80, 8192, 28672, 64)

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
NVFP4 = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}


def compressed(weights, inputs, layout):
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
        },
    }


FP8_DYNAMIC = compressed(
    {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
    {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
    "float-quantized",
)
W4A16 = compressed(
    {
        "num_bits": 4,
        "type": "int",
        "strategy": "group",
        "group_size": 128,
        "symmetric": True,
        "actorder": "group",
    },
    None,
    "pack-quantized",
)


@pytest.mark.parametrize(
    ("fields", "block", "side", "expected"),
    [
        # unsloth/Meta-Llama-3.1-8B-Instruct, index
        (LLAMA_8B, None, None, 16_060_522_496),
        # RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic, headers
        (LLAMA_8B, FP8_DYNAMIC, None, 9_083_953_152),
        # an AutoAWQ checkpoint of Llama-3.1-70B in nine shards, index
        (LLAMA_70B, AWQ, None, 39_767_785_472),
        # nvidia/Llama-3.3-70B-Instruct-FP4, index
        (LLAMA_70B, None, NVFP4, 42_709_045_632),
        # RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16, headers
        (LLAMA_70B, W4A16, None, 39_525_311_232),
    ],
    ids=["8b-bf16", "8b-fp8-dynamic", "70b-awq", "70b-nvfp4", "70b-w4a16"],
)
def test_llama_checkpoints_to_the_byte(fields, block, side, expected):
    assert model(fields, block, side).weight_bytes == expected


def test_gptq_to_the_byte_but_for_the_biases_autogptq_adds():
    # RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16, headers. AutoGPTQ stores an f16 bias (all
    # zeros) with every matrix, which the model does not have: 2 bytes for each output row.
    rows = 32 * (4096 + 1024 + 1024 + 4096 + 14336 + 14336 + 4096)
    assert model(LLAMA_8B, GPTQ).weight_bytes == 5_735_587_840 - 2 * rows


def gpt_oss(layers, experts):
    return {
        "model_type": "gpt_oss",
        "num_hidden_layers": layers,
        "num_local_experts": experts,
        "num_experts_per_tok": 4,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 201088,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "tie_word_embeddings": False,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        },
    }


@pytest.mark.parametrize(
    ("layers", "experts", "expected"),
    [(36, 128, 65_248_815_744), (24, 32, 13_761_264_768)],  # openai/gpt-oss-120b and -20b, index
    ids=["120b", "20b"],
)
def test_gpt_oss_to_the_byte(layers, experts, expected):
    assert model(gpt_oss(layers, experts)).weight_bytes == expected


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}
FP8_BLOCK = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}


def test_deepseek_v3_with_its_draft_layer():
    # deepseek-ai/DeepSeek-V3, files: 688,586,727,753 bytes in 163 shards. The MTP layer's copies of
    # embedding and head (README_WEIGHTS.md: shared with the main model) are stored there again; the
    # rest is headers, about 130 bytes for each of 92 thousand tensors.
    made = model(DEEPSEEK_V3, FP8_BLOCK)
    copies = 2 * 129280 * 7168 * 2
    draft = sum(w.bytes for w in made.mtp) + sum(e.bytes for e in made.mtp_experts)
    headers = 688_586_727_753 - (made.weight_bytes + draft + copies)
    assert 100 < headers / 92_000 < 160


KIMI_K2_5 = compressed(
    {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
    None,
    "pack-quantized",
) | {
    "ignore": [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    ]
}


def test_kimi_k2_thinking_is_594_gb():
    # moonshotai/Kimi-K2-Thinking, the same text model and scheme as K2.5: 594 GB by its model page
    # and by Unsloth's documentation ("the 1T model ... 594 GB").
    fields = DEEPSEEK_V3 | {
        "model_type": "kimi_k2",
        "num_nextn_predict_layers": 0,
        "n_routed_experts": 384,
        "first_k_dense_replace": 1,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "vocab_size": 163840,
    }
    assert model(fields, KIMI_K2_5).weight_bytes == pytest.approx(594e9, rel=2e-3)


def test_a_32b_model_with_block_scales_and_a_bf16_head_by_hand():
    # Qwen3-32B-FP8: 64 layers of 5120, 64 query and 8 KV heads of 128, MLP 25600, vocabulary 151936.
    attention = 5120 * (64 + 8 + 8) * 128 + 64 * 128 * 5120
    matrices = 64 * (attention + 3 * 5120 * 25600)
    scales = 64 * (40 * (64 + 8 + 8) + 64 * 40 + 3 * 40 * 200)
    norms = 64 * (2 * 5120 + 2 * 128) + 5120
    tables = 2 * 151936 * 5120
    fields = {
        "model_type": "qwen3",
        "num_hidden_layers": 64,
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    }
    made = model(fields, FP8_BLOCK)
    assert made.weight_bytes == matrices + 4 * scales + 2 * (norms + tables)
    head = made.head[-1]
    assert (head.format.name, head.bytes) == ("bf16", 2 * 151936 * 5120)


def qwen3_6_35b_mixed():
    """ModelOpt MIXED_PRECISION as NVIDIA wrote it: fp8 attention, NVFP4 experts and head."""
    fp8, nvfp4 = {"quant_algo": "FP8"}, {"quant_algo": "W4A16_NVFP4", "group_size": 16}
    layers = {"lm_head": nvfp4}
    for i in range(40):
        stem = f"model.language_model.layers.{i}"
        mixer = ("self_attn", "qkvo") if i % 4 == 3 else ("linear_attn", ())
        names = [f"{letter}_proj" for letter in mixer[1]] or [
            "in_proj_qkv",
            "in_proj_z",
            "out_proj",
        ]
        layers |= {f"{stem}.{mixer[0]}.{name}": fp8 for name in names}
        layers[f"{stem}.mlp.experts"] = nvfp4
        shared = ("gate_proj", "up_proj", "down_proj")
        layers |= {f"{stem}.mlp.shared_expert.{name}": nvfp4 for name in shared}
    return {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
        "ignore": ["mtp*", "mtp.layers.0*"],
    }


def test_a_mixed_checkpoint_of_a_hybrid_model():
    # nvidia/Qwen3.6-35B-A3B-NVFP4: 23.5 GB of files. The text model and its draft layer are ours; the
    # bf16 vision tower (27 blocks of 1152, MLP 4304, merger 4608 -> 2048) is not.
    text = {
        "model_type": "qwen3_5_moe_text",
        "num_hidden_layers": 40,
        "hidden_size": 2048,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "mtp_num_hidden_layers": 1,
        "vocab_size": 248320,
    }
    made = model(
        {"model_type": "qwen3_5_moe", "tie_word_embeddings": False, "text_config": text},
        qwen3_6_35b_mixed(),
    )
    draft = sum(w.bytes for w in made.mtp) + sum(e.bytes for e in made.mtp_experts)
    block = 4 * 1152 * 1152 + 2 * 1152 * 4304
    vision = 2 * (27 * block + 2304 * 1152 + 1536 * 1152 + 4608 * 4608 + 4608 * 2048)
    assert made.weight_bytes + draft + vision == pytest.approx(23.5e9, abs=0.1e9)
