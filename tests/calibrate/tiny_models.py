"""Decoders small enough to run in milliseconds, one of each kind the Torch decoder runs."""

from roofcast.simulator.models import from_fields

COMMON = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 256,
}
GATED = {**COMMON, "intermediate_size": 80, "hidden_act": "silu", "rms_norm_eps": 1e-6}
MIXTRAL = {
    **GATED,
    "model_type": "mixtral",
    "num_key_value_heads": 2,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

FIELDS = {
    "mha": {**GATED, "model_type": "llama", "num_key_value_heads": 6},
    "gqa": {**GATED, "model_type": "llama", "num_key_value_heads": 2},
    "mqa": {**GATED, "model_type": "llama", "num_key_value_heads": 1},
    "wide_heads": {**GATED, "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 24},
    "windowed": {
        **GATED,
        "model_type": "mistral",
        "num_key_value_heads": 2,
        "sliding_window": 5,
    },
    "some_windows": {
        **GATED,
        "model_type": "qwen2",
        "num_key_value_heads": 2,
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
    },
    "experts": MIXTRAL,
    "shared_expert": {
        **GATED,
        "model_type": "qwen2_moe",
        "num_key_value_heads": 6,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40,
        "decoder_sparse_step": 2,
    },
    "learned_positions": {
        "model_type": "gpt2",
        "vocab_size": 97,
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 6,
        "n_positions": 64,
    },
    "offset_positions": {**COMMON, "model_type": "opt", "ffn_dim": 80, "word_embed_proj_dim": 48},
    "tied": {
        **GATED,
        "model_type": "llama",
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "stretched_rope": {
        **GATED,
        "model_type": "llama",
        "num_key_value_heads": 2,
        "rope_scaling": LLAMA3_SCALING,
    },
    "two_ropes": {
        **GATED,
        "model_type": "gemma3_text",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 5,
        "sliding_window_pattern": 3,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "partial_rope": {
        **GATED,
        "model_type": "phi3",
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.5,
        "sliding_window": None,
    },
}


def tiny(kind, **changed):
    """The architecture of one of `FIELDS`, with some of its fields changed."""
    return from_fields({**FIELDS[kind], **changed}, name=kind)
