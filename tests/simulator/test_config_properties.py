"""Any config within a family's valid ranges gives positive, finite counts that grow with its sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.hardware.errors import InputError
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.cache import cache_bytes, kv_bytes_per_token
from roofcast.simulator.families.registry import families
from roofcast.simulator.models import from_fields

MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
EXTRA: dict[str, dict[str, Any]] = {
    "qwen3_moe": MOE,
    "glm4_moe": {**MOE, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "deepseek_v3": {**MOE, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "v_head_dim": 16},
}
TYPES = ["llama", "mistral", "qwen3", "gemma3_text", "gpt2", "falcon", "cohere2", *EXTRA]


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    heads = draw(st.sampled_from([1, 2, 4, 6, 8]))
    kv = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    family = draw(st.sampled_from(TYPES))
    return {
        "model_type": family,
        "hidden_size": heads * draw(st.integers(1, 64)),
        "intermediate_size": draw(st.integers(1, 4096)),
        "num_hidden_layers": draw(st.integers(1, 40)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": draw(st.integers(1, 300_000)),
        "tie_word_embeddings": draw(st.booleans()),
        **EXTRA.get(family, {}),
    }


def parsed(fields: dict[str, Any]) -> Architecture:
    return from_fields(fields, name="x")


def outcome(fields: dict[str, Any]) -> Architecture | str:
    """The model, or what the refusal says."""
    try:
        return parsed(fields)
    except InputError as error:
        return str(error)


def sensible(result: Architecture | str, least: float) -> None:
    if isinstance(result, str):
        assert "\n" not in result
    else:
        assert result.parameters > least


@given(configs())
@settings(max_examples=150, deadline=None)
def test_counts_are_positive_and_finite(fields: dict[str, Any]) -> None:
    model = parsed(fields)
    assert len(model.layers) == fields["num_hidden_layers"]
    assert 0 < model.active_parameters <= model.parameters
    assert np.isfinite(model.weight_bytes)
    assert kv_bytes_per_token(model) > 0


@given(configs(), st.sampled_from(["num_hidden_layers", "vocab_size", "intermediate_size"]))
@settings(max_examples=150, deadline=None)
def test_parameters_grow_with_every_size(fields: dict[str, Any], field: str) -> None:
    more = parsed({**fields, field: fields[field] + 8})
    less = parsed(fields)
    unused = fields["model_type"] == "qwen3_moe" or (
        fields["model_type"] in ("glm4_moe", "deepseek_v3") and field == "intermediate_size"
    )
    assert more.parameters >= less.parameters if unused else more.parameters > less.parameters


@given(configs())
@settings(max_examples=100, deadline=None)
def test_caches_never_shrink_with_context(fields: dict[str, Any]) -> None:
    held = cache_bytes(parsed(fields), np.arange(0, 6000, 37))
    assert np.all(np.diff(held) >= 0)
    assert held[0] == 0


@given(
    st.sampled_from(sorted(families())),
    st.dictionaries(
        st.sampled_from(["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]),
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.integers(-5, 5)),
        min_size=4,
    ),
)
@settings(max_examples=300, deadline=None)
def test_nonsense_is_refused_in_one_line_or_parsed(family: str, fields: dict[str, Any]) -> None:
    sensible(outcome({"model_type": family, **fields}), 0)


@pytest.mark.parametrize("model_type", sorted(families()))
def test_a_bare_model_type_is_the_published_class_or_refused(model_type: str) -> None:
    sensible(outcome({"model_type": model_type}), 1e8)
