"""The operators of one forward pass, with FLOPs and bytes, for one rank.

Every number is an array that broadcasts over the points of a `Workload`, so that a sweep is one pass.
The numbers are those of the busiest rank, for all layers of the stack that run the operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from roofcast.simulator import spans
from roofcast.simulator.architecture import (
    AttentionCore,
    Core,
    Experts,
    Indexer,
    LatentCore,
    Layer,
    StateCore,
    Weight,
)
from roofcast.simulator.collectives import (
    all_reduce,
    exchange_experts,
    gather_logits,
    send_stages,
)
from roofcast.simulator.formats import WeightFormat, element_bytes
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.routing import busiest, distinct_experts
from roofcast.simulator.workload import Array

__all__ = ["Operator", "Pass", "operators", "share"]

_ZERO = np.zeros(())


def operators(work: Pass) -> tuple[Operator, ...]:
    """All operators of one pass through the whole stack, in execution order, one entry a name."""
    merged: dict[tuple[str, str], Operator] = {}
    for operator in _all(work):
        key = (operator.name, operator.format)
        merged[key] = merged[key] + operator if key in merged else operator
    return tuple(merged.values())


def _all(work: Pass) -> Iterable[Operator]:
    """Embeddings and head are missing from all pipeline stages but the first and the last."""
    architecture = work.architecture
    if architecture.embeddings:
        yield _embedding(work)
        if any(weight.pieces > 1 for weight in architecture.embeddings):
            yield from all_reduce(work)
        yield from _matrices(work, architecture.embeddings, rows=work.tokens)
    for layer, count in architecture.counted_layers():
        for operator in _layer(work, layer):
            yield operator.times(count)
    yield from send_stages(work)
    if architecture.head:
        yield _norms(work, architecture.head, blocks=1.0)
        yield from _matrices(work, architecture.head, rows=work.sequences)
        yield from gather_logits(work)
    if work.sampled:
        yield _sampler(work)


def _layer(work: Pass, layer: Layer) -> Iterable[Operator]:
    dense = tuple(weight for weight in layer.weights if weight.use == "matmul")
    mixer = [weight for weight in dense if weight.part in _MIXER_PARTS]
    blocks = 2.0 if layer.cores and ("+" in layer.kind or layer.experts) else 1.0
    yield _norms(work, layer.weights, blocks)
    if layer.mixing_flops:
        yield _mixing(work, layer)
    yield from _matrices(work, mixer, rows=work.tokens)
    for core in layer.cores:
        yield from _core(work, core)
    if _norm_spans_ranks(work, layer):
        yield from _sum_of_squares(work)
    if mixer:
        yield from all_reduce(work)
    yield from _matrices(work, [w for w in dense if w.part not in _MIXER_PARTS], rows=work.tokens)
    if layer.experts:
        yield from _experts(work, layer.experts)
    if any(weight.part in _MLP_PARTS for weight in dense) or layer.experts:
        yield _activation(work, layer)
        yield from exchange_experts(work, layer.experts) if layer.experts else all_reduce(work)


_MIXER_PARTS = ("attention", "indexer", "linear_attention")
_SPLIT_INPUTS = ("o_proj", "o_b_proj", "out_proj", "down_proj", "shared_down", "experts_down")
_TILE_ROWS, _TILE_COLUMNS = 64, 128  # of an expert's output one block computes
_MLP_PARTS = ("mlp", "shared_experts")


def _matrices(work: Pass, weights: Iterable[Weight], rows: Array) -> Iterable[Operator]:
    """GEMMs: one operator for the matrices that share a name, hence an input.

    FLOPs are 2 x rows x matrix, bytes the matrix plus rows of input (once) and of output.
    """
    groups: dict[tuple[str, str], list[Weight]] = {}
    for weight in weights:
        if weight.use == "matmul":
            groups.setdefault((weight.op, weight.format.name), []).append(weight)
    element = element_bytes(work.activation_dtype)
    for (name, _), group in groups.items():
        tensor = work.parallelism.tensor
        shares = [share(weight.pieces, tensor) for weight in group]
        matrix = sum(w.rows * w.columns * s for w, s in zip(group, shares, strict=True))
        outputs = sum(w.rows * s for w, s in zip(group, shares, strict=True))
        held = sum(w.bytes * s for w, s in zip(group, shares, strict=True))
        inputs = float(max(weight.columns for weight in group))
        if name in _SPLIT_INPUTS:  # these hold a part of their columns, and sum over ranks
            inputs, outputs = inputs * max(shares), sum(w.rows for w in group)
        yield Operator(
            name=name,
            kind="gemm",
            dtype=group[0].format.compute,
            format=group[0].format.name,
            launches=1.0 + _quantise_before(work, group[0].format),
            flops=2.0 * rows * matrix,
            weight_bytes=np.asarray(float(held)),
            activation_bytes=rows * ((inputs + outputs) * element),
            rows=rows,
            depth=np.asarray(inputs),
        )


def _quantise_before(work: Pass, stored: WeightFormat) -> float:
    """Kernels that scale the input of a product of the stack; some engines fuse those of NVFP4."""
    fused = work.kernels.quantise_nvfp4 if stored.name == "nvfp4" else None
    return _quantise(work, stored) if fused is None else fused


def _quantise(work: Pass, stored: WeightFormat) -> float:
    """Kernels that scale the input of a matrix before its product."""
    if stored.activations == "dynamic":
        return work.kernels.quantise_dynamic
    return work.kernels.quantise_static if stored.activations == "static" else 0.0


def share(pieces: int, ranks: int) -> float:
    """Fraction of a tensor of `pieces` indivisible parts that the busiest of `ranks` holds.

    >>> share(8, 4), share(8, 16), share(1, 8), share(10, 4)
    (0.25, 0.125, 1.0, 0.3)
    """
    return math.ceil(pieces / ranks) / pieces


def _core(work: Pass, core: Core) -> Iterable[Operator]:
    if isinstance(core, StateCore):
        yield _state(work, core)
        return
    if core.indexer is not None:
        yield _indexer(work, core, core.indexer)
    yield _latent(work, core) if isinstance(core, LatentCore) else _attention(work, core)


def _attention(work: Pass, core: AttentionCore) -> Operator:
    """Scores and weighted values: 2 x (key + value dims) FLOPs a query head and visible entry."""
    cell, tensor = element_bytes(work.kv_dtype), work.parallelism.tensor
    query_heads = core.query_heads * share(core.query_heads, tensor)
    kv_heads = core.kv_heads * share(core.kv_heads, tensor)
    entry = kv_heads * (core.key_dim + (0 if core.value_is_key else core.value_dim)) * cell
    context, new = work.workload.context, work.workload.new
    seen = spans.pairs(core, context, new)
    read = spans.entries_read(core, context, new)
    written = new / core.compression if core.stores else _ZERO
    kernels = work.kernels.attention + work.kernels.rope
    copies = 1.0 + work.kernels.reads_again * (query_heads / kv_heads - 1.0)
    return Operator(
        name="attention" if core.window is None else "window_attention",
        kind="attention",
        dtype=work.activation_dtype,
        format=work.kv_dtype,
        launches=kernels + (work.kernels.append if core.stores else 0.0),
        flops=work.sequences * seen * (2.0 * query_heads * (core.key_dim + core.value_dim)),
        kv_read_bytes=work.sequences * read * (entry * copies),
        kv_write_bytes=work.sequences * written * entry,
        activation_bytes=_query_bytes(work, query_heads * (core.key_dim + core.value_dim)),
        rows=new * (query_heads / kv_heads),
        depth=read,
        blocks=work.sequences * kv_heads,
    )


def _latent(work: Pass, core: LatentCore) -> Operator:
    """MLA: absorbed over the latent in decode, expanded to heads in prefill (the cheaper form)."""
    cell = element_bytes(work.kv_dtype)
    heads = core.heads * share(core.heads, work.parallelism.tensor)
    entry = (core.latent_dim + core.rope_dim) * cell
    context, new = work.workload.context, work.workload.new
    absorbed = 2 * core.latent_dim + core.rope_dim
    expanded = core.nope_dim + core.rope_dim + core.value_dim
    width = np.where(new > 1, expanded, absorbed)
    read = spans.entries_read(core, context, new)
    return Operator(
        name="latent_attention",
        kind="attention",
        dtype=work.activation_dtype,
        format=work.kv_dtype,
        launches=work.kernels.attention + work.kernels.rope + work.kernels.append,
        flops=work.sequences * spans.pairs(core, context, new) * (2.0 * heads * width),
        kv_read_bytes=work.sequences * read * entry,
        kv_write_bytes=work.sequences * new * entry,
        activation_bytes=_query_bytes(work, heads * absorbed),
        rows=work.sequences,
        depth=read,
        blocks=work.sequences * math.ceil(heads / _TILE_ROWS),
    )


def _query_bytes(work: Pass, elements: float) -> Array:
    return work.tokens * (elements * element_bytes(work.activation_dtype))


def _indexer(work: Pass, core: AttentionCore | LatentCore, indexer: Indexer) -> Operator:
    """Scores of every cached key; its keys are replicated, its heads are not split."""
    cell = element_bytes(work.kv_dtype)
    context, new = work.workload.context, work.workload.new
    per_pair = 2.0 * indexer.heads * (indexer.dim + (1 if indexer.weighs_heads else 0))
    compression = core.compression if isinstance(core, AttentionCore) else 1
    read = np.floor((context + new) / compression)
    return Operator(
        name="indexer_scores",
        kind="attention",
        dtype=work.activation_dtype,
        format=work.kv_dtype,
        launches=1.0,
        flops=work.sequences * spans.scored(core, context, new) * per_pair,
        kv_read_bytes=work.sequences * read * (indexer.key_dim * cell),
        kv_write_bytes=work.sequences * (new / compression) * (indexer.key_dim * cell),
        rows=work.sequences,
    )


def _state(work: Pass, core: StateCore) -> Operator:
    """A recurrent state is read and written once a pass and sequence, however long the context."""
    part = share(core.pieces, work.parallelism.tensor)
    size = (core.conv_elements * 2 + core.state_elements * core.state_element_bytes) * part
    return Operator(
        name=core.kind,
        kind="state",
        dtype=work.activation_dtype,
        format="state",
        launches=work.kernels.state,
        flops=work.tokens * (core.flops * part),
        vector_flops=work.tokens * (core.vector_flops * part),
        kv_read_bytes=work.sequences * size,
        kv_write_bytes=work.sequences * size,
        rows=work.sequences,
    )


def _experts(work: Pass, experts: Experts) -> Iterable[Operator]:
    """Routed experts: FLOPs of the experts a token runs, bytes of the distinct experts touched.

    Both are those of the busiest rank: chance fills whole experts unevenly over expert-parallel ranks.
    """
    ranks = work.parallelism
    tokens = work.expert_tokens
    held_here = share(experts.count, ranks.expert) * experts.count
    used = distinct_experts(experts.count, experts.active, tokens, work.skew) / experts.count
    spread = held_here * used * (1.0 - used)
    touched = np.minimum(busiest(held_here * used, spread, ranks.expert), held_here)
    mean = tokens * experts.active / ranks.expert
    routed = busiest(mean, mean * (1.0 - 1.0 / ranks.expert), ranks.expert)
    element = element_bytes(work.activation_dtype)
    groups: dict[tuple[str, str], list[Weight]] = {}
    for weight in experts.weights:
        groups.setdefault((weight.op, weight.format.name), []).append(weight)
    for (name, _), group in groups.items():
        shares = [share(weight.pieces, ranks.expert_tensor) for weight in group]
        matrix = sum(w.rows * w.columns * s for w, s in zip(group, shares, strict=True))
        outputs = sum(w.rows * s for w, s in zip(group, shares, strict=True))
        held = sum(w.bytes * s for w, s in zip(group, shares, strict=True))
        around = work.kernels.combine if name == "experts_down" else work.kernels.route
        inputs = float(max(w.columns for w in group))
        if name in _SPLIT_INPUTS:
            inputs, outputs = inputs * max(shares), sum(w.rows for w in group)
        # every rank gathers from and scatters into the hidden states of all tokens, routed here or not
        hidden = outputs if name in _SPLIT_INPUTS else inputs
        moved = routed * (inputs + outputs) + tokens * hidden
        tall = routed / np.maximum(touched, 1.0)
        tiles = np.ceil(tall / _TILE_ROWS) * math.ceil(outputs / _TILE_COLUMNS)
        yield Operator(
            name=name,
            kind="experts",
            dtype=group[0].format.compute,
            format=group[0].format.name,
            launches=1.0 + around + _quantise(work, group[0].format),
            flops=2.0 * routed * matrix,
            weight_bytes=touched * held,
            activation_bytes=moved * element,
            rows=tall,
            depth=np.asarray(inputs),
            blocks=touched * tiles,
            matrices=touched,
        )


def _elementwise(work: Pass, name: str, launches: float, elements: Array) -> Operator:
    return Operator(
        name=name,
        kind="elementwise",
        dtype=work.activation_dtype,
        format=work.activation_dtype,
        launches=launches,
        activation_bytes=elements * element_bytes(work.activation_dtype),
        rows=work.tokens,
    )


def _embedding(work: Pass) -> Operator:
    """One row per token of every table that is looked up, read and written."""
    width = sum(weight.columns for weight in work.architecture.embeddings if weight.use == "lookup")
    return _elementwise(work, "embedding", 1.0, work.tokens * (2.0 * width))


def _norms(work: Pass, weights: Iterable[Weight], blocks: float) -> Operator:
    """Residual add and norm before each block: read stream and update, write both back.

    The vectors of the layer (norms, sinks, gates) are read here too.
    """
    width = work.architecture.hidden_size * work.architecture.hidden_copies
    kernels = work.kernels
    own = 0.0 if kernels.norm_fused and work.parallelism.tensor > 1 else kernels.norm
    vectors = [weight for weight in weights if weight.use == "vector"]
    qk_norm = kernels.qk_norm if any("q_norm" in weight.path for weight in vectors) else 0.0
    launches = blocks * own + qk_norm
    norms = _elementwise(work, "norm_residual", launches, work.tokens * (4.0 * blocks * width))
    held = sum(weight.bytes for weight in vectors)
    return replace(norms, weight_bytes=np.asarray(float(held)))


def _mixing(work: Pass, layer: Layer) -> Operator:
    """Residual streams mixed with each other; their bytes are those of the norm and residual."""
    mixing = _elementwise(work, "stream_mixing", 1.0, _ZERO)
    return replace(mixing, flops=work.tokens * float(layer.mixing_flops))


def _activation(work: Pass, layer: Layer) -> Operator:
    """The MLP's non-linearity: gate and up in, their product out. Experts' kernels run their own."""
    tensor = work.parallelism.tensor
    width = sum(
        weight.rows * share(weight.pieces, tensor)
        for weight in layer.weights
        if weight.part in _MLP_PARTS and weight.op.endswith(("gate_up_proj", "gate_up", "up_proj"))
    )
    if layer.experts:
        expert = sum(w.rows for w in layer.experts.weights if not w.op.endswith("down"))
        width += expert * layer.experts.active / (tensor * work.parallelism.data)
    dense = any(weight.part in _MLP_PARTS for weight in layer.weights)
    launches = work.kernels.activation if dense else 0.0
    return _elementwise(work, "activation", launches, work.tokens * (1.5 * width))


def _sampler(work: Pass) -> Operator:
    """Logits to token: the vocabulary's logits read once in fp32, for each sequence."""
    rows = work.sequences * (work.architecture.vocab_size * 2.0)
    return _elementwise(work, "sampler", 1.0, rows)


def _norm_spans_ranks(work: Pass, layer: Layer) -> bool:
    """Whether query and key norms average over heads that other ranks hold (MiniMax-M2, OLMo-2)."""
    if work.parallelism.tensor == 1:
        return False
    return any(
        weight.rows == core.query_heads * core.key_dim > core.key_dim
        for weight in layer.weights
        for core in layer.cores
        if isinstance(core, AttentionCore) and weight.path.endswith("q_norm")
    )


def _sum_of_squares(work: Pass) -> Iterable[Operator]:
    """The mean squares of queries and keys, summed over tensor ranks: two fp32 numbers a token."""
    return all_reduce(work, work.tokens * 8.0)
