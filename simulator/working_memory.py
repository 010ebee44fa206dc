"""What a step needs besides weights and cache while it runs: its largest layer, and its sampler."""

from __future__ import annotations

from roofcast.simulator.architecture import Layer, Weight
from roofcast.simulator.formats import element_bytes
from roofcast.simulator.memory_policy import Policy
from roofcast.simulator.operators import share
from roofcast.simulator.passes import Pass

_STREAMS = 2.0  # the residual stream, and its normalised copy


def activation_bytes(work: Pass, policy: Policy) -> float:
    """Bytes of the largest layer's tensors for a full token budget, on one rank.

        tokens x element x (2 H + max over blocks of (inputs of the products + half of them again))

    A gated MLP holds gate and up (2 I) and their product (I); attention holds queries, keys and values
    and its output. Routed tokens hold the same for each expert they use, and each expert's result.
    """
    element = element_bytes(work.activation_dtype)
    hidden = work.architecture.hidden_size * work.architecture.hidden_copies
    widest = max(
        (_layer_width(work, layer) for layer, _ in work.architecture.counted_layers()), default=0.0
    )
    return policy.token_budget * element * (_STREAMS * hidden + widest)


def sampling_bytes(work: Pass, policy: Policy) -> float:
    """Bytes of logits and what a sampler makes of them, for as many sequences as the engine admits."""
    return policy.sequences * work.architecture.vocab_size * policy.logit_bytes


def _layer_width(work: Pass, layer: Layer) -> float:
    """Elements a token needs in the wider block of a layer."""
    ranks = work.parallelism
    mixer = sum(_rows(weight, ranks.tensor) for weight in layer.weights if _is_mixer(weight))
    dense = sum(_rows(weight, ranks.tensor) for weight in layer.weights if _is_mlp(weight))
    routed = 0.0
    if layer.experts:
        one = sum(_rows(w, ranks.expert_tensor) for w in layer.experts.weights if not _is_down(w))
        # each routed copy of a token: its products, their activation, and its result
        copies = layer.experts.active * ranks.data / ranks.expert
        routed = max(copies, 1.0) * (1.5 * one + work.architecture.hidden_size)
    return max(mixer + _head_output(layer, ranks.tensor), 1.5 * dense + routed)


def _rows(weight: Weight, ranks: int) -> float:
    return weight.rows * share(weight.pieces, ranks)


def _is_mixer(weight: Weight) -> bool:
    return weight.use == "matmul" and weight.part in ("attention", "linear_attention", "indexer")


def _is_mlp(weight: Weight) -> bool:
    return (
        weight.use == "matmul" and weight.part in ("mlp", "shared_experts") and not _is_down(weight)
    )


def _is_down(weight: Weight) -> bool:
    return weight.op.endswith("down") or weight.op.endswith("down_proj")


def _head_output(layer: Layer, ranks: int) -> float:
    """Columns of the output projection: what attention hands on before it."""
    return sum(
        weight.columns * share(weight.pieces, ranks)
        for weight in layer.weights
        if weight.op in ("o_proj", "o_b_proj", "out_proj")
    )
