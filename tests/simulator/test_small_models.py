"""Hybrid, recurrent and unusual families against transformers, on small models with odd options.

Every option that changes a shape is varied somewhere: biases, ties, layer patterns, head sizes,
shared blocks, latent sizes. The counted numbers are facts about those models, see the file's source.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roofcast.simulator.architecture import Architecture, AttentionCore, LatentCore, StateCore
from roofcast.simulator.cache import cache_bytes
from roofcast.simulator.models import from_fields
from roofcast.simulator.operators import Pass, operators
from roofcast.simulator.workload import Workload

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "small_models.json").read_text()
)["models"]
COUNTED = [row for row in ROWS if "decode_flops" in row]
CACHED = [row for row in ROWS if "cache_bytes" in row]


def named(row: dict[str, Any]) -> str:
    return str(row["name"])


def built(row: dict[str, Any]) -> Architecture:
    return from_fields(row["config"], name=row["name"])


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_parameters_are_those_transformers_builds(row: dict[str, Any]) -> None:
    assert built(row).parameters == row["parameters"]


@pytest.mark.parametrize("row", COUNTED, ids=named)
def test_matrix_flops_are_those_counted_but_for_what_no_server_computes(
    row: dict[str, Any],
) -> None:
    model = built(row)
    for point, counted in row["decode_flops"].items():
        batch, context = (int(number) for number in point[1:].split("_L"))
        step = Pass(model, Workload.decode(batch, context))
        ours = float(sum(operator.flops for operator in operators(step)))
        waste = batch * sum(wasted(model, context + 1))
        assert ours + waste == pytest.approx(counted, rel=TOLERANCE.get(model.family, 1e-9))


# JetMoE's expert bias is carried as a matrix of one column: 2 FLOPs an element too many.
TOLERANCE = {"jetmoe": 1e-3}


def wasted(model: Architecture, visible: int) -> Iterator[float]:
    """What transformers computes for one token beyond what a serving kernel does.

    - A cached depthwise convolution runs over one column too many: 2 FLOPs a weight.
    - Latent attention expands all cached latents every step instead of absorbing the projection.
    - Sparse attention scores every compressed entry and masks those that were not selected.
    """
    for layer in model.layers:
        convolutions = [w for w in layer.weights if w.op == "conv1d"]
        yield sum(2.0 * weight.rows * weight.columns for weight in convolutions)
        for core in layer.cores:
            if isinstance(core, LatentCore):
                expanded = core.nope_dim + core.rope_dim + core.value_dim
                absorbed = 2 * core.latent_dim + core.rope_dim
                projection = core.heads * (core.nope_dim + core.value_dim) * core.latent_dim
                yield 2.0 * core.heads * visible * (expanded - absorbed)
                yield 2.0 * projection * (visible - 1)
            elif isinstance(core, AttentionCore) and core.selected is not None:
                masked = max(0, visible // core.compression - core.selected)
                yield 2.0 * core.query_heads * (core.key_dim + core.value_dim) * masked


@pytest.mark.parametrize("row", CACHED, ids=named)
def test_caches_and_states_are_as_large_as_the_cache_objects(row: dict[str, Any]) -> None:
    model = built(row)
    for context, held in row["cache_bytes"].items():
        assert float(cache_bytes(model, int(context) + 1)) == held


def test_the_rows_cover_every_recurrent_mixer() -> None:
    cores = {core for row in ROWS for layer in built(row).layers for core in layer.cores}
    kinds = {core.kind for core in cores if isinstance(core, StateCore)}
    assert kinds == {
        "gated_delta_net",
        "kimi_delta_attention",
        "lightning_attention",
        "mamba",
        "mamba2",
        "rg_lru",
        "short_convolution",
    }
