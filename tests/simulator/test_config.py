"""Reading config.json: what is refused, how, and what absent, null and nested fields mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofcast.hardware.errors import FileFormatError, InputError, UnknownNameError
from roofcast.simulator.cache import kv_bytes_per_token, kv_bytes_per_token_beyond_windows
from roofcast.simulator.models import from_fields, load

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
MISTRAL = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}


def refused(fields: dict[str, Any], kind: type[InputError] = FileFormatError) -> str:
    with pytest.raises(InputError) as error:
        from_fields(fields, name="config.json")
    assert type(error.value) is kind
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not valid JSON"),
        (b'{"model_type": "llama", "hidden_size":', "not valid JSON"),
        (b"[1, 2, 3]", "expected a JSON object, found an array"),
        (b"null", "expected a JSON object, found null"),
        (b'"llama"', "expected a JSON object, found a str"),
        (bytes(range(128, 256)) * 64, "binary data"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b"{}", "model_type is missing"),
    ],
)
def test_what_is_not_a_config_is_one_clear_line(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=reason) as error:
        load(path)
    assert "\n" not in str(error.value)
    assert "broken" in str(error.value)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(FileFormatError, match="larger than 32 MiB"):
        load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"nothing\.json: no such file"):
        load(tmp_path / "nothing.json")
    with pytest.raises(FileFormatError, match=r"config\.json: no such file"):
        load(tmp_path)


def test_an_unknown_family_names_the_nearest_and_all_that_are_known() -> None:
    message = refused({**LLAMA, "model_type": "lama"}, UnknownNameError)
    assert "unknown model_type 'lama'; did you mean" in message
    assert "'llama'" in message
    assert "deepseek_v3" in message


def test_an_unknown_class_is_refused_although_its_model_type_is_known() -> None:
    # EAGLE draft heads say model_type llama and are one layer with another input.
    fields = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"]}
    assert "unknown architecture 'LlamaForCausalLMEagle3'" in refused(fields, UnknownNameError)
    fields = {**LLAMA, "architectures": ["FooForCausalLM"]}
    assert "unknown architecture 'FooForCausalLM'" in refused(fields, UnknownNameError)


@pytest.mark.parametrize(
    "field",
    ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"],
)
class TestSizes:
    def test_missing(self, field: str) -> None:
        fields = {key: value for key, value in LLAMA.items() if key != field}
        assert f"{field} is missing" in refused(fields)

    @pytest.mark.parametrize("value", [-1, 0, 4096.5, 4096.0, "4096", True, [4096], None, 10**30])
    def test_not_a_size(self, field: str, value: object) -> None:
        message = refused({**LLAMA, field: value})
        assert f"config.json: {field} must be" in message
        shown = json.dumps(value)
        assert shown in message

    def test_nested_files_take_the_class_default_instead(self, field: str) -> None:
        inner = {key: value for key, value in LLAMA.items() if key not in (field, "architectures")}
        nested = from_fields({"model_type": "llava", "text_config": inner}, name="x")
        defaults = {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 32000,
        }
        whole = from_fields({**LLAMA, field: defaults[field]}, name="x")
        assert nested.parameters == whole.parameters


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 7}, "num_key_value_heads = 7 must divide num_attention_heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads = 64 must divide"),
        ({"num_key_value_heads": "8"}, 'num_key_value_heads must be a whole number, not "8"'),
        ({"num_attention_heads": 24}, "hidden_size = 4096 must be a multiple of"),
        ({"attention_bias": "no"}, 'attention_bias must be true or false, not "no"'),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false, not 1"),
        ({"torch_dtype": "float12"}, "dtype must be one of bfloat16"),
        ({"n_embd": 2048}, "hidden_size is given twice with different values"),
        ({"num_hidden_layers": 20_000}, "num_hidden_layers must be at most 10000"),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], message: str) -> None:
    assert message in refused({**LLAMA, **changes})


def test_a_layer_pattern_of_the_wrong_length_or_kind_is_refused() -> None:
    fields = {**LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    wrong = {**fields, "layer_types": ["full_attention"] * 31}
    assert "layer_types has 31 entries, but the model has 32 layers" in refused(wrong)
    wrong = {**fields, "layer_types": ["full_attention"] * 31 + ["spiral_attention"]}
    assert 'has an entry "spiral_attention"; each must be one of' in refused(wrong)


def test_more_experts_a_token_than_experts_is_refused() -> None:
    fields = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    fields |= {"num_local_experts": 2, "num_experts_per_tok": 3}
    assert "num_experts_per_tok = 3 is more than the model's 2 experts" in refused(fields)


def test_absent_is_not_null_in_a_mistral_window() -> None:
    windowed = from_fields(MISTRAL, name="x")
    full = from_fields({**MISTRAL, "sliding_window": None}, name="x")
    assert kv_bytes_per_token(windowed) == kv_bytes_per_token(full) == 131_072
    assert kv_bytes_per_token_beyond_windows(windowed) == 0
    assert kv_bytes_per_token_beyond_windows(full) == 131_072


def test_a_window_no_context_reaches_never_binds() -> None:
    fields = {**MISTRAL, "sliding_window": 8192, "max_position_embeddings": 8192}
    assert kv_bytes_per_token_beyond_windows(from_fields(fields, name="x")) == 131_072


def test_qwen_ignores_its_window_unless_it_uses_it() -> None:
    fields = {**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    fields |= {"sliding_window": 4096, "max_window_layers": 28}
    assert kv_bytes_per_token_beyond_windows(from_fields(fields, name="x")) == 131_072
    used = from_fields({**fields, "use_sliding_window": True}, name="x")
    assert kv_bytes_per_token_beyond_windows(used) == 131_072 * 28 / 32


def test_ties_may_stand_on_the_outer_level_only() -> None:
    inner = {**LLAMA, "model_type": "qwen3_vl_text"}
    del inner["architectures"]
    untied = from_fields({"model_type": "qwen3_vl", "text_config": inner}, name="x")
    tied = from_fields(
        {"model_type": "qwen3_vl", "text_config": inner, "tie_word_embeddings": True}, name="x"
    )
    assert untied.parameters - tied.parameters == 128256 * 4096


def test_head_dim_of_mla_files_is_noise() -> None:
    fields = {
        "model_type": "deepseek_v3",
        "hidden_size": 2048,
        "intermediate_size": 11264,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "vocab_size": 163840,
        "q_lora_rank": None,
    }
    plain = from_fields(fields, name="x")
    assert from_fields({**fields, "head_dim": 72}, name="x").parameters == plain.parameters
    assert kv_bytes_per_token(plain) == 27 * 576 * 2


def test_fields_that_might_matter_are_named_in_a_warning() -> None:
    fields = {**LLAMA, "num_mystery_heads": 12, "eos_token_id": 2, "rope_theta": 5e5, "x_flag": 0}
    warnings = from_fields(fields, name="x").warnings
    assert len(warnings) == 1
    assert "'num_mystery_heads' is not understood for llama" in warnings[0]


def test_kimi_k2_is_read_as_deepseek_v3() -> None:
    fields: dict[str, Any] = {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "n_routed_experts": 384,
        "first_k_dense_replace": 1,
        "vocab_size": 163840,
    }
    known = from_fields(fields, name="x")
    assert from_fields({**fields, "model_type": "kimi_k2"}, name="x").layers == known.layers
    nested = {"model_type": "kimi_k25", "text_config": {**fields, "model_type": "kimi_k2"}}
    assert from_fields(nested, name="x").layers == known.layers
