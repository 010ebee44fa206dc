"""Attention-only families against transformers, on small models with every switch thrown somewhere.

Biases, ties, norms, head sizes, windows and layer patterns, experts and shared experts vary; the
numbers are facts about those models, see the file's source.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from roofcast.simulator.cache import cache_bytes
from roofcast.simulator.models import from_fields
from roofcast.simulator.operators import Pass, operators
from roofcast.simulator.workload import Workload

MODELS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "small_decoders.json").read_text()
)["models"]


def named(model: dict[str, Any]) -> str:
    return f"{model['config']['model_type']} {model['parameters']}"


each = pytest.mark.parametrize("model", MODELS, ids=named)


def test_nearly_a_hundred_families_have_four_models_each() -> None:
    counts = Counter(model["config"]["model_type"] for model in MODELS)
    assert len(counts) == 99
    assert set(counts.values()) == {4}


@each
def test_parameters(model: dict[str, Any]) -> None:
    assert from_fields(model["config"], name="x").parameters == model["parameters"]


@pytest.mark.parametrize("model", [m for m in MODELS if "cache_bytes" in m], ids=named)
def test_cache_bytes(model: dict[str, Any]) -> None:
    assert cache_bytes(from_fields(model["config"], name="x"), 21) == model["cache_bytes"]


@pytest.mark.parametrize("model", [m for m in MODELS if "decode_flops" in m], ids=named)
def test_matrix_flops(model: dict[str, Any]) -> None:
    step = Pass(from_fields(model["config"], name="x"), Workload.decode(2, 20))
    assert sum(operator.flops for operator in operators(step)) == model["decode_flops"]
