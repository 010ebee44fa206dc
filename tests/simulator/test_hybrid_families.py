"""Published sizes, and refusals, of hybrid and unusual families."""

from typing import Any

import pytest

from roofcast.hardware.errors import InputError
from roofcast.simulator.cache import kv_bytes_per_token, state_bytes_per_sequence
from roofcast.simulator.models import from_fields

JAMBA = {
    "model_type": "jamba",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 256,
    "vocab_size": 65536,
}
MINIMAX_TEXT = {
    "model_type": "minimax_text_01",
    "hidden_size": 6144,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9216,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "vocab_size": 200064,
    "attn_type_list": [1 if i % 8 == 7 else 0 for i in range(80)],
}
LONGCAT = {
    "model_type": "longcat_flash",
    "hidden_size": 6144,
    "num_layers": 28,
    "num_attention_heads": 64,
    "ffn_hidden_size": 12288,
    "expert_ffn_hidden_size": 2048,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 512,
    "zero_expert_num": 256,
    "moe_topk": 12,
    "vocab_size": 131072,
}
KIMI = {
    "model_type": "kimi_linear",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 128,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 32,
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
        "head_dim": 16,
        "num_heads": 4,
    },
}
NEMOTRON = {
    "model_type": "nemotron_h",
    "hidden_size": 64,
    "vocab_size": 128,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "hybrid_override_pattern": "M-*-",
}
ZAMBA2 = {"model_type": "zamba2"}


def test_jamba_has_52_billion_parameters_12_active_and_four_attention_layers() -> None:
    """Jamba, arXiv 2403.19887: 52B total, 12B active, 4 GB of KV cache at 256K tokens."""
    model = from_fields(JAMBA, name="jamba-v0.1")
    assert model.parameters == pytest.approx(52e9, rel=0.01)
    assert model.active_parameters == pytest.approx(12e9, rel=0.01)
    assert kv_bytes_per_token(model) == 4 * 2 * 8 * 128 * 2
    assert kv_bytes_per_token(model) * 2**18 == 4 * 2**30


def test_minimax_text_has_456_billion_parameters_and_46_active_beside_its_tables() -> None:
    """MiniMax-01, arXiv 2501.08313: 456B in total, 45.9B activated per token."""
    model = from_fields(MINIMAX_TEXT, name="minimax-text-01")
    tables = 2 * 200064 * 6144
    assert model.parameters == pytest.approx(456e9, rel=0.001)
    assert model.active_parameters - tables == pytest.approx(45.9e9, rel=0.002)
    assert state_bytes_per_sequence(model) == 70 * 64 * 128 * 128 * 2


def test_longcat_holds_560_billion_and_runs_eight_of_its_twelve_picks() -> None:
    """LongCat-Flash, arXiv 2509.01322: 560B parameters; zero experts hold none."""
    model = from_fields(LONGCAT, name="longcat-flash")
    experts = model.layers[0].experts
    assert experts is not None
    assert experts.active == 8.0
    assert model.weight_bytes / 2 == pytest.approx(560e9, rel=0.002)
    assert model.parameters - model.weight_bytes / 2 == 28 * 256 * 2 * 2048 * 6144
    assert "zero experts" in model.warnings[0]
    assert kv_bytes_per_token(model) == 56 * (512 + 64) * 2


def test_a_shared_block_is_resident_once_and_read_at_each_use() -> None:
    """Zamba2's class defaults: nine hybrid layers take turns with one block."""
    model = from_fields(ZAMBA2, name="zamba2")
    query = [
        weight
        for layer in model.layers
        for weight in layer.weights
        if weight.path == "shared_transformer.self_attn.q_proj"
    ]
    assert len(query) == 9
    assert [weight.resident for weight in query] == [True] + [False] * 8


def test_kimi_k3_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="Kimi K3, which is not supported"):
        from_fields({**KIMI, "routed_expert_hidden_size": 32}, name="kimi-k3")


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (KIMI, {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}}, "once"),
        (KIMI, {"num_experts_per_token": 9}, "more than the model's 8 experts"),
        (NEMOTRON, {"hybrid_override_pattern": "MX*"}, "letters M E"),
        (NEMOTRON, {"hybrid_override_pattern": None}, "is missing"),
        (NEMOTRON, {"num_key_value_heads": 3}, "must divide"),
        (NEMOTRON, {"mamba_ssm_cache_dtype": "int8"}, "must be one of float32"),
        (JAMBA, {"attn_layer_offset": 8}, "less than the period"),
        (JAMBA, {"mamba_d_state": 1.5}, "positive whole number"),
        (MINIMAX_TEXT, {"attn_type_list": [0, 1]}, "has 2 entries, but the model has 80"),
        (MINIMAX_TEXT, {"attn_type_list": [2] * 80}, "0 .lightning. and 1 .full."),
        (LONGCAT, {"qk_head_dim": 100}, "qk_nope_head_dim"),
        (ZAMBA2, {"num_hidden_layers": 10}, "without layers_block_type"),
        (ZAMBA2, {"layers_block_type": ["mamba", "moe"], "num_hidden_layers": 2}, "entry"),
    ],
)
def test_sizes_that_contradict_each_other_are_one_clear_error(
    base: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        from_fields({**base, **change}, name="broken")
