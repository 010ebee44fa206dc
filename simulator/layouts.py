"""Which layouts of a model over devices engines accept.

A forecast allows any split and takes the fullest rank; engines refuse uneven ones, and so does the
planner. Source of the rules: vllm/config/model.py (verify_with_parallel_config), Apache-2.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from roofcast.hardware.errors import InputError
from roofcast.simulator.architecture import Architecture, AttentionCore, LatentCore, StateCore
from roofcast.simulator.workload import Parallelism


def complaint(architecture: Architecture, layout: Parallelism) -> str:
    """Why an engine would refuse the layout, and what the forecast does instead; empty if it wouldn't.

    >>> from roofcast.simulator.models import load
    >>> complaint(load("llama-3.1-8b"), Parallelism(tensor=3))
    'TP 3 does not divide the 32 attention heads; engines refuse that, forecasts take the fullest rank'
    """
    reason = refusal(architecture, layout)
    return f"{reason}; engines refuse that, forecasts take the fullest rank" if reason else ""


def refusal(architecture: Architecture, layout: Parallelism) -> str:
    """Why an engine refuses a layout, or nothing."""
    return next(_refusals(architecture, layout), "")


def require_servable(architecture: Architecture, layout: Parallelism) -> None:
    """Raise InputError for a layout with which an engine would not start."""
    reason = refusal(architecture, layout)
    if reason:
        raise InputError(
            f"{reason}: engines refuse that layout of {architecture.name} "
            "(roofcast predict forecasts its steps all the same)"
        )


def _refusals(architecture: Architecture, layout: Parallelism) -> Iterator[str]:
    tensor = layout.tensor
    for heads, kv_heads in head_counts(architecture):
        if heads % tensor:
            yield f"TP {tensor} does not divide the {heads} attention heads"
        if kv_heads % tensor and tensor % kv_heads:
            yield f"TP {tensor} neither divides the {kv_heads} KV heads nor is a multiple of them"
    pieces = state_pieces(architecture)
    if pieces % tensor:
        yield f"TP {tensor} does not divide the {pieces} heads of the recurrent layers"
    if layout.pipeline > len(architecture.layers):
        yield f"PP {layout.pipeline} is more than the {len(architecture.layers)} layers"
    experts = expert_counts(architecture)
    for count in experts:
        if count % layout.expert:
            yield f"EP {layout.expert} does not divide the {count} experts"
    if not experts and (layout.expert > 1 or layout.data > 1):
        yield "EP and attention groups need routed experts; replicas do the same for dense models"


def head_counts(architecture: Architecture) -> set[tuple[int, int]]:
    """Query and KV heads of all kinds of attention layers; one KV head for a shared latent."""
    found = set()
    for layer, _ in architecture.counted_layers():
        for core in layer.cores:
            if isinstance(core, AttentionCore):
                found.add((core.query_heads, core.kv_heads))
            elif isinstance(core, LatentCore):
                found.add((core.heads, 1))
    return found


def state_pieces(architecture: Architecture) -> int:
    """Parts into which recurrent layers can be cut: the greatest number that suits all; 0 without."""
    pieces = [
        core.pieces
        for layer, _ in architecture.counted_layers()
        for core in layer.cores
        if isinstance(core, StateCore)
    ]
    return math.gcd(*pieces) if pieces else 0


def expert_counts(architecture: Architecture) -> set[int]:
    """Numbers of routed experts of all kinds of layers."""
    return {layer.experts.count for layer, _ in architecture.counted_layers() if layer.experts}
