"""GGUF files as models: metadata to config.json fields, tensor names to module names.

Sources: gguf 0.19.0, constants.py (keys and tensor names); llama.cpp, convert_hf_to_gguf.py (which
config field each key comes from).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from roofcast.hardware.errors import bad_file, unknown
from roofcast.simulator.gguf_file import Gguf, Value, read_gguf
from roofcast.simulator.safetensors_file import Tensor

Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class Model:
    """A GGUF model: fields as a config.json would have them, tensors under checkpoint names."""

    fields: Mapping[str, object]
    tensors: tuple[Tensor, ...]


def read_model(path: Path) -> Model:
    """The model of one GGUF file, or of all pieces of a split one."""
    first, tensors = _pieces(path)
    architecture = first.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise bad_file(path, "is missing", where="general.architecture")
    if architecture not in _FAMILIES:
        raise unknown(f"{path.name}: GGUF architecture", architecture, _FAMILIES)
    named = tuple(replace(tensor, name=module_name(tensor.name)) for tensor in tensors)
    facts = _Facts(path, architecture, first, {tensor.name: tensor for tensor in named})
    return Model(_FAMILIES[architecture](facts), named)


def _pieces(path: Path) -> tuple[Gguf, tuple[Tensor, ...]]:
    """A split model keeps its metadata in the first of -0000i-of-0000n.gguf, tensors in all."""
    match = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name)
    if not match:
        one = read_gguf(path)
        return one, one.tensors
    stem, count = match[1], int(match[2])
    files = [path.with_name(f"{stem}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]
    read = [read_gguf(file) for file in files]
    tensors = tuple(tensor for piece in read for tensor in piece.tensors)
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise bad_file(path, "two pieces of the split model store the same tensor")
    return read[0], tensors


# ---- tensor names -----------------------------------------------------------------------------

_LAYER_NAMES: Final = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sinks": "self_attn.sinks",
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj",
    "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
_TOP_NAMES: Final = {
    "token_embd": "embed_tokens",
    "output": "lm_head",
    "output_norm": "norm",
}


def module_name(name: str) -> str:
    """A GGUF tensor name in a checkpoint's words; one without a counterpart stays as it is.

    >>> module_name("blk.3.ffn_up_exps.weight"), module_name("token_embd.weight")
    ('layers.3.mlp.experts.*.up_proj.weight', 'embed_tokens.weight')
    """
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if layer and layer[2] in _LAYER_NAMES:
        return f"layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.{layer[3]}"
    stem, _, kind = name.rpartition(".")
    return f"{_TOP_NAMES[stem]}.{kind}" if stem in _TOP_NAMES else name


# ---- metadata to config fields ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Facts:
    """Typed access to the metadata of one file."""

    path: Path
    architecture: str
    file: Gguf
    tensors: Mapping[str, Tensor]

    def get(self, key: str) -> Value | None:
        return self.file.metadata.get(f"{self.architecture}.{key}")

    def size(self, key: str) -> int:
        """A whole number the model cannot do without; of a list for all layers, the largest."""
        value = self.optional(key)
        if value is None:
            raise bad_file(self.path, "is missing", where=f"{self.architecture}.{key}")
        return value

    def optional(self, key: str) -> int | None:
        value = self.get(key)
        if isinstance(value, list):
            wholes = [item for item in value if isinstance(item, int)]
            value = max(wholes, default=None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            where = f"{self.architecture}.{key}"
            raise bad_file(self.path, f"expected a whole number, got {value!r}", where=where)
        return value

    def has(self, tensor: str) -> bool:
        return tensor in self.tensors

    def vocabulary(self) -> int:
        """Rows of the token table, which a padded vocabulary makes more than its tokens."""
        table = self.tensors.get("embed_tokens.weight")
        if table is None or len(table.shape) != 2:
            raise bad_file(self.path, "is missing", where="token_embd.weight")
        return table.shape[0]


def _common(facts: _Facts, model_type: str) -> Fields:
    heads = facts.size("attention.head_count")
    fields: Fields = {
        "model_type": model_type,
        "num_hidden_layers": facts.size("block_count"),
        "hidden_size": facts.size("embedding_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": facts.optional("attention.head_count_kv") or heads,
        "vocab_size": facts.vocabulary(),
        "tie_word_embeddings": not facts.has("lm_head.weight"),
    }
    optional: dict[str, Value | None] = {
        "intermediate_size": facts.optional("feed_forward_length"),
        "head_dim": facts.optional("attention.key_length"),
        "max_position_embeddings": facts.optional("context_length"),
        "rms_norm_eps": facts.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": facts.get("rope.freq_base"),
    }
    fields.update({key: value for key, value in optional.items() if value is not None})
    return fields


def _experts(facts: _Facts) -> Fields:
    return {
        "num_experts": facts.size("expert_count"),
        "num_experts_per_tok": facts.size("expert_used_count"),
        "moe_intermediate_size": facts.optional("expert_feed_forward_length")
        or facts.size("feed_forward_length"),
    }


def _llama(facts: _Facts) -> Fields:
    """Llama, Mistral (written as llama) and, with experts, Mixtral."""
    if facts.optional("expert_count"):
        chosen = _common(facts, "mixtral") | _experts(facts)
        chosen.pop("moe_intermediate_size")
        return chosen | {"sliding_window": None}
    biased = facts.has("layers.0.self_attn.q_proj.bias")
    return _common(facts, "llama") | {"attention_bias": biased}


def _plain(model_type: str) -> Callable[[_Facts], Fields]:
    return lambda facts: _common(facts, model_type)


def _qwen2_moe(facts: _Facts) -> Fields:
    shared = facts.size("expert_shared_feed_forward_length")
    return (
        _common(facts, "qwen2_moe")
        | _experts(facts)
        | {
            "shared_expert_intermediate_size": shared,
            "decoder_sparse_step": 1,
        }
    )


def _qwen3_moe(facts: _Facts) -> Fields:
    return _common(facts, "qwen3_moe") | _experts(facts) | {"decoder_sparse_step": 1}


def _windowed(model_type: str) -> Callable[[_Facts], Fields]:
    def fields(facts: _Facts) -> Fields:
        return _common(facts, model_type) | {
            "sliding_window": facts.size("attention.sliding_window")
        }

    return fields


def _phi3(facts: _Facts) -> Fields:
    window = facts.optional("attention.sliding_window")
    return _common(facts, "phi3") | {"sliding_window": window or None}


def _gpt_oss(facts: _Facts) -> Fields:
    fields = _common(facts, "gpt_oss") | _experts(facts)
    fields["intermediate_size"] = fields.pop("moe_intermediate_size")
    fields["sliding_window"] = facts.size("attention.sliding_window")
    return fields


# To add an architecture: its metadata as fields of the family that reads it.
_FAMILIES: Final[dict[str, Callable[[_Facts], Fields]]] = {
    "llama": _llama,
    "qwen2": _plain("qwen2"),
    "qwen2moe": _qwen2_moe,
    "qwen3": _plain("qwen3"),
    "qwen3moe": _qwen3_moe,
    "gemma": _plain("gemma"),
    "gemma2": _windowed("gemma2"),
    "gemma3": _windowed("gemma3_text"),
    "phi3": _phi3,
    "gpt-oss": _gpt_oss,
}
