"""Config fields that change neither a size nor what a decode step reads or computes in matrices."""

from __future__ import annotations

import re
from typing import Final

# Tokens and text, training, initialisation, positions without a table, routing arithmetic, logging
# and saving. Anything else that an adapter does not read is named in a warning.
_NAMES: Final = frozenset(
    """
    _name_or_path _attn_implementation _attn_implementation_autoset _commit_hash _source
    activation_fn add_cross_attention add_faster_video alibi_bias_max attn_implementation
    attn_logit_softcapping attn_scale attention_multiplier attention_softmax_in_fp32
    attention_bias_init auto_map aux_loss_alpha begin_suppress_tokens bos_token boi_token_index
    chunk_size_feed_forward clip_qkv cross_attention_hidden_size do_sample dtype torch_dtype
    embedding_multiplier emb_scale eos_token eoi_token_index ep_size error_on_export eps
    final_logit_softcapping finetuning_task floor_scale fp32_residual_connection fused_mlp
    gradient_checkpointing hidden_act hidden_activation activation_function id2label label2id
    image_token_index initial_context_length initializer_range initializer_factor init_device
    init_std is_causal is_decoder is_encoder_decoder is_llama_config keys_to_ignore_at_inference
    layer_norm_epsilon layer_norm_eps learned_pos_emb logit_scale logits_scaling
    logits_to_keep long_factor mup_base max_length min_length model_max_length
    max_position_embeddings max_sequence_length moe_router_activation_func mlp_dropout
    multiplier n_ctx n_group topk_group norm_eps norm_epsilon norm_topk_prob norm_type
    normalization_function num_labels num_logits_to_keep original_max_position_embeddings
    output_attentions output_hidden_states output_router_logits output_scale
    partial_rotary_factor rotary_dim rotary_pct rotary_emb_base rotary_percent position_embedding_type
    prefix prepend_bos pretraining_tp problem_type query_pre_attn_scalar rescale_every
    residual_multiplier resid_pdrop attn_pdrop embd_pdrop emb_pdrop embed_pdrop return_dict
    return_dict_in_generate rms_norm_eps rms_norm_epsilon rope_theta rope_scaling rope_parameters
    rope_interleave rope_local_base_freq rope_mscale rope_type routed_scaling_factor
    router_aux_loss_coef router_jitter_noise router_z_loss_coef router_dtype scale_attn_weights
    scale_attn_by_inverse_layer_idx scale_attention_softmax_in_fp32 reorder_and_upcast_attn
    scale_embedding scale_depth scale_emb scoring_func seq_aux seq_length slow_but_exact
    softmax_extra_scale summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj swiglu_limit swiglu_limits swiglu_limits_shared task_specific_params
    tokenizer_class topk_method torchscript transformers_version unsloth_fixed unsloth_version
    use_bfloat16 use_cache use_flash_attn use_flash_attention use_dynamic_ntk use_logn_attn vlm
    validate_runner_inputs bad_words_ids early_stopping num_beams temperature top_k top_p
    repetition_penalty typical_p suppress_tokens quantization_config kv_cache_scheme
    """.split()
)
_PATTERNS: Final = re.compile(
    r".*token_ids?$|.*token_index$|.*dropout.*|.*_pdrop$|.*initializer.*|^rope_.*|.*_rope_.*theta.*"
    r"|^mscale.*|.*softcap.*|^_.*|.*loss.*coef.*|.*jitter.*|^mup_.*|^output_.*|.*init_std$"
)


def is_harmless(name: str) -> bool:
    """Whether a field is known to matter to no count.

    >>> is_harmless("eos_token_id"), is_harmless("num_mystery_heads")
    (True, False)
    """
    return name in _NAMES or _PATTERNS.fullmatch(name) is not None
