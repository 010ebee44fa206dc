"""145 configurations with what transformers makes of them, and how ours differ, each with a reason.

`python -m tests.simulator.truth` prints the comparison as a table.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from roofcast.simulator import cache as caches
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.models import from_fields
from roofcast.simulator.operators import Pass, operators
from roofcast.simulator.workload import Workload

FILE = Path(__file__).parents[1] / "data" / "architectures.json"

# Where the reference's number is not what a server does. Key: model_type, quantity.
DIFFERENCES: Mapping[tuple[str, str], str] = {
    ("falcon", "kv_bytes_per_token_beyond_windows"): (
        "transformers caches Falcon-40B's 8 KV heads broadcast to 128; a server keeps 8"
    ),
    ("falcon", "cache_bytes"): (
        "transformers caches Falcon-40B's 8 KV heads broadcast to 128; a server keeps 8"
    ),
    ("deepseek_v4", "cache_bytes"): (
        "transformers also keeps the tokens of a group that is not complete yet, twice for "
        "overlapping groups"
    ),
}

# Why FLOPs that agree within the tolerance are not equal.
FLOPS_DIFFER: Mapping[str, str] = {
    "minimax_m3_vl_text": "it selects whole key blocks, the newest of which is not full yet; here "
    "all selected blocks are full",
    "jetmoe": "the bias of its attention experts is carried as a matrix of one column here",
}

# Columns of each depthwise convolution that the reference counts beyond the one a step needs.
EXTRA_COLUMNS: Mapping[str, int] = {
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "kimi_linear"), 1),
    **dict.fromkeys(("mamba", "mamba2", "bamba", "nemotron_h", "zamba2", "granitemoehybrid"), 1),
    **dict.fromkeys(("lfm2", "lfm2_moe"), 1),
    "falcon_mamba": 6,  # it convolves the whole padded window
    "recurrent_gemma": -1,  # it writes the convolution as an element-wise sum
}

# The reference's names for parts, ours, and what ours counts elsewhere.
PARTS: Mapping[str, str] = {
    "mlp_dense": "mlp",
    "linear_attn_ssm": "linear_attention",
    "per_layer_embeddings": "embeddings",
    "hyper_connections": "other",
    "per_layer_input": "other",
    "moe_latent_proj": "other",
}
PARTS_DIFFER: Mapping[str, str] = {
    "dbrx": "the reference's rule puts norm_attn_norm.attn under norms",
    "opt": "the reference's rule puts biases and projections of OPT-350m elsewhere",
    "recurrent_gemma": "the reference counts the attention layers' matrices as linear attention",
    "deepseek_v4": "norms inside attention and indexer count as norms here",
    "gemma3n_text": "norms, router and scalars of AltUp and LAuReL count under other names",
    "gemma4_text": "norms of the per-layer inputs count under other names",
    "zamba2": "adapters of the shared block count as other here",
}


@dataclass(frozen=True)
class Row:
    """One configuration and the reference's numbers."""

    checkpoint: str
    model_type: str
    source_kind: str
    config: dict[str, Any]
    truth: dict[str, Any]

    @property
    def architecture(self) -> Architecture:
        return _built(self.checkpoint)

    def differs(self, quantity: str) -> str:
        """Why a quantity is not the reference's, or nothing."""
        return DIFFERENCES.get((self.model_type, quantity), "")


@cache
def rows() -> tuple[Row, ...]:
    return tuple(Row(**row) for row in json.loads(FILE.read_text())["rows"])


@cache
def _built(checkpoint: str) -> Architecture:
    row = next(row for row in rows() if row.checkpoint == checkpoint)
    return from_fields(row.config, name=checkpoint)


def flops_errors(row: Row) -> Iterator[tuple[str, float]]:
    """For each batch and context counted, ours over the reference's, less 1."""
    for point, counted in row.truth["decode_flops"].items():
        batch, context = (int(number) for number in point[1:].split("_L"))
        step = Pass(row.architecture, Workload.decode(batch, context))
        ours = float(sum(operator.flops for operator in operators(step)))
        yield point, ours / counted - 1


def flops_left(row: Row) -> float:
    """The largest relative difference of FLOPs once the extra convolutions are added."""
    extra = convolved_besides(row)
    left = [
        error + int(point[1:].split("_L")[0]) * extra / row.truth["decode_flops"][point]
        for point, error in flops_errors(row)
    ]
    return max(map(abs, left))


def convolved_besides(row: Row) -> float:
    """FLOPs a sequence of the convolutions that the reference counts and a step does not need."""
    convolutions = [
        weight.rows * weight.columns
        for layer in row.architecture.layers
        for weight in layer.weights
        if weight.op == "conv1d"
    ]
    return 2.0 * sum(convolutions) * EXTRA_COLUMNS.get(row.model_type, 0)


def cache_errors(row: Row) -> Iterator[tuple[int, float, float]]:
    """(tokens, our bytes, the reference's) where they differ."""
    for tokens, held in row.truth["cache_bytes"].items():
        ours = float(caches.cache_bytes(row.architecture, int(tokens)))
        if ours != held:
            yield int(tokens), ours, held


def parts(architecture: Architecture) -> dict[str, int]:
    """Parameters by part."""
    found: Counter[str] = Counter()
    for weight in architecture.weights():
        if weight.resident:
            found[weight.part] += weight.parameters
    for layer in architecture.layers:
        if layer.experts:
            found["experts"] += layer.experts.parameters
    return {part: count for part, count in found.items() if count}


def reference_parts(row: Row) -> dict[str, int]:
    """The reference's parameters by part, in our names."""
    found: Counter[str] = Counter()
    for part, count in row.truth["parts"].items():
        found[PARTS.get(part, part)] += count
    return dict(found)


def main() -> None:
    """Print the comparison."""
    print_ = sys.stdout.write
    print_(f"{'checkpoint':46} {'parameters':>17} {'active':>6} {'KV/token':>8} {'FLOPs':>8}\n")
    for row in rows():
        model, truth = row.architecture, row.truth
        exact = "exact" if model.parameters == truth["parameters"] else "WRONG"
        active = "exact" if model.active_parameters == truth["active_parameters"] else "WRONG"
        kv = "exact" if not list(cache_errors(row)) else "*"
        worst = max((abs(error) for _, error in flops_errors(row)), default=0.0)
        print_(
            f"{row.checkpoint[-46:]:46} {model.parameters:>11,} {exact} {active:>6} {kv:>8} "
            f"{worst:8.3%}\n"
        )
    print_("\nFLOPs: largest relative difference over all batches and contexts.\n")
    for model_type, reason in FLOPS_DIFFER.items():
        print_(f"  {model_type}: {reason}\n")
    for model_type, columns in EXTRA_COLUMNS.items():
        print_(
            f"  {model_type}: the reference convolves {columns:+d} columns beside the step's one\n"
        )
    print_("* differs:\n")
    for (model_type, quantity), reason in DIFFERENCES.items():
        print_(f"  {model_type}, {quantity}: {reason}\n")


if __name__ == "__main__":
    main()
