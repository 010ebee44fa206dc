"""Families that transformers never took in, against the totals their pages publish."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.hardware.errors import InputError
from roofcast.simulator.cache import kv_bytes_per_token
from roofcast.simulator.models import from_fields

INTERNLM2_7B: dict[str, Any] = {
    "model_type": "internlm2",
    "architectures": ["InternLM2ForCausalLM"],
    "bias": False,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 92544,
}
QWEN_7B: dict[str, Any] = {
    "model_type": "qwen",
    "architectures": ["QWenLMHeadModel"],
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "kv_channels": 128,
    "no_bias": True,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "seq_length": 8192,
    "vocab_size": 151936,
}
BAICHUAN2_7B: dict[str, Any] = {
    "model_type": "baichuan",
    "architectures": ["BaichuanForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 125696,
}
CHATGLM3_6B: dict[str, Any] = {
    "model_type": "chatglm",
    "architectures": ["ChatGLMModel"],
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "ffn_hidden_size": 13696,
    "hidden_size": 4096,
    "kv_channels": 128,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 32,
    "num_layers": 28,
    "padded_vocab_size": 65024,
    "post_layer_norm": True,
    "rmsnorm": True,
    "seq_length": 8192,
}
MINICPM_2B: dict[str, Any] = {
    "model_type": "minicpm",
    "architectures": ["MiniCPMForCausalLM"],
    "hidden_size": 2304,
    "intermediate_size": 5760,
    "num_attention_heads": 36,
    "num_hidden_layers": 40,
    "num_key_value_heads": 36,
    "vocab_size": 122753,
}
DEEPSEEK_MOE_16B: dict[str, Any] = {
    "model_type": "deepseek",
    "architectures": ["DeepseekForCausalLM"],
    "first_k_dense_replace": 1,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 28,
    "num_key_value_heads": 16,
    "vocab_size": 102400,
}


@pytest.mark.parametrize(
    ("fields", "parameters", "kv_bytes"),
    [
        (INTERNLM2_7B, 7_737_708_544, 32 * 2 * 8 * 128 * 2),
        (QWEN_7B, 7_721_324_544, 32 * 2 * 32 * 128 * 2),
        (BAICHUAN2_7B, 7_505_973_248, 32 * 2 * 32 * 128 * 2),
        (CHATGLM3_6B, 6_243_584_000, 28 * 2 * 2 * 128 * 2),
        (MINICPM_2B, 2_724_880_896, 40 * 2 * 36 * 64 * 2),
        (DEEPSEEK_MOE_16B, 16_375_728_128, 28 * 2 * 16 * 128 * 2),
    ],
    ids=lambda value: value.get("model_type", "") if isinstance(value, dict) else "",
)
def test_published_totals(fields: dict[str, Any], parameters: int, kv_bytes: int) -> None:
    model = from_fields(fields, name="x")
    assert model.parameters == parameters
    assert kv_bytes_per_token(model) == kv_bytes
    assert model.warnings == ()


def test_deepseek_moe_16b_runs_2_8_billion_a_token() -> None:
    # The report's title figure: 16.4 B in all, 2.8 B active.
    assert from_fields(DEEPSEEK_MOE_16B, name="x").active_parameters == pytest.approx(
        2.8e9, rel=0.02
    )


def test_odd_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="must be even"):
        from_fields({**QWEN_7B, "intermediate_size": 22017}, name="x")
    with pytest.raises(InputError, match="multi_query_group_num = 5 must divide 32 heads"):
        from_fields({**CHATGLM3_6B, "multi_query_group_num": 5}, name="x")
