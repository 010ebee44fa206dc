"""What a replica keeps in memory, per device, and whether it fits."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from roofcast.hardware.accelerator import Accelerator
from roofcast.simulator.architecture import AttentionCore, Core, StateCore
from roofcast.simulator.cache import entries_kept, entry_elements
from roofcast.simulator.formats import element_bytes
from roofcast.simulator.operators import Pass, share
from roofcast.simulator.workload import Array

USABLE_FRACTION = 0.90
"""Share of memory an engine plans with: gpu_memory_utilization of vLLM, by default. Assumed."""

RESERVE_BYTES = 1.2e9
"""Context, allocator and graphs: vLLM 0.19 with Llama-3.1-8B on a 24 GB card kept 5.4 GB for the cache."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest device of a replica."""

    weight_bytes: float
    cache_bytes: Array
    activation_bytes: Array
    reserve_bytes: float
    usable_bytes: float

    @property
    def total_bytes(self) -> Array:
        """Everything, reserve included."""
        return self.weight_bytes + self.cache_bytes + self.activation_bytes + self.reserve_bytes

    @property
    def fits(self) -> Array:
        """Whether it fits in what the device offers."""
        return np.asarray(self.total_bytes <= self.usable_bytes)


def memory(work: Pass, device: Accelerator) -> Memory:
    """Memory of the fullest device, with the cache of every sequence at context + new tokens.

    A CPU keeps no graphs and shares its memory with the system: it reserves nothing extra.
    """
    held = rank_weight_bytes(work)
    sequences = np.ceil(work.workload.batch / work.parallelism.data)
    context = work.workload.context + work.workload.new
    cache = sequences * rank_cache_bytes(work, context) / work.parallelism.pipeline
    width = work.architecture.hidden_size + work.architecture.vocab_size
    activations = work.tokens * (4.0 * width * element_bytes(work.activation_dtype))
    reserve = 0.0 if device.kind == "cpu" else RESERVE_BYTES
    return Memory(held, cache, activations, reserve, USABLE_FRACTION * device.memory_bytes)


def rank_weight_bytes(work: Pass) -> float:
    """Resident weight bytes of one rank: tensors cut into their pieces, experts over their ranks."""
    ranks = work.parallelism
    total = 0.0
    for weight in work.architecture.weights():
        if weight.resident:
            total += weight.bytes * share(weight.pieces, ranks.tensor)
    for layer in work.architecture.layers:
        if layer.experts:
            local = share(layer.experts.count, ranks.expert) * layer.experts.count
            one = sum(w.bytes * share(w.pieces, ranks.expert_tensor) for w in layer.experts.weights)
            total += local * one
    return total / ranks.pipeline


def rank_cache_bytes(work: Pass, context: Array) -> Array:
    """KV cache and state of one sequence on one tensor rank, all layers, after `context` tokens.

    A rank holds its share of the KV heads, at least one; latents and indexer keys are replicated.
    """
    cell = element_bytes(work.kv_dtype)
    cores = Counter(core for layer in work.architecture.layers for core in layer.cores)
    total = np.zeros_like(context)
    for core, count in cores.items():
        held = _on_rank(core, work.parallelism.tensor)
        total = total + count * cell * entry_elements(held) * entries_kept(held, context)
        if isinstance(core, StateCore):
            size = core.conv_elements * cell + core.state_elements * core.state_element_bytes
            total = total + count * size * share(core.pieces, work.parallelism.tensor)
    return total


def _on_rank(core: Core, tensor: int) -> Core:
    if not isinstance(core, AttentionCore):
        return core
    return replace(core, kv_heads=math.ceil(core.kv_heads / tensor))
