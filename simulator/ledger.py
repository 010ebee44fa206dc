"""What a model is made of, part by part: parameters, bytes held, bytes a step at batch 1 reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roofcast.simulator.architecture import Architecture, Experts, Part, Weight


@dataclass(frozen=True, slots=True)
class PartCount:
    """Tensors of one kind together.

    `parameters` and `resident_bytes` count tied and shared tensors once; `read_bytes` is what one step
    for one token reads: every use of a shared tensor, top_k of the routed experts, one row of a table.
    `formats` names how the tensors are stored, the most bytes first.
    """

    part: str
    parameters: int
    resident_bytes: float
    read_bytes: float
    formats: tuple[str, ...]


def parts(architecture: Architecture) -> tuple[PartCount, ...]:
    """The parts of a model in the order a step meets them; next-token-prediction layers come last.

    >>> from roofcast.simulator.models import load
    >>> [(each.part, each.parameters) for each in parts(load("llama-3.1-8b"))][0]
    ('embeddings', 525336576)
    """
    groups: dict[str, list[tuple[Weight, float, float]]] = {}
    for part, weight, held, read in _uses(architecture):
        groups.setdefault(part, []).append((weight, held, read))
    return tuple(_count(part, uses) for part, uses in groups.items())


def _uses(architecture: Architecture) -> Iterator[tuple[Part | str, Weight, float, float]]:
    """Every tensor with how many of it are held, and how many one token reads."""
    for weight in architecture.weights():
        yield weight.part, weight, float(weight.resident), _read_share(weight)
    for layer in architecture.layers:
        if layer.experts:
            yield from _expert_uses("experts", layer.experts, layer.experts.active)
    for weight in architecture.mtp:
        yield "next-token prediction", weight, float(weight.resident), 0.0
    for experts in architecture.mtp_experts:
        yield from _expert_uses("next-token prediction", experts, 0.0)


def _expert_uses(
    part: str, experts: Experts, active: float
) -> Iterator[tuple[str, Weight, float, float]]:
    for weight in experts.weights:
        yield part, weight, float(experts.count), active


def _read_share(weight: Weight) -> float:
    if weight.use == "lookup":
        return 1.0 / weight.rows
    return 0.0 if weight.use == "unused" else 1.0


def _count(part: str, uses: list[tuple[Weight, float, float]]) -> PartCount:
    by_format: dict[str, float] = {}
    for weight, held, read in uses:
        size = weight.bytes * max(held, read)
        by_format[weight.format.name] = by_format.get(weight.format.name, 0.0) + size
    return PartCount(
        part=part,
        parameters=round(sum(weight.parameters * held for weight, held, _ in uses)),
        resident_bytes=sum(
            weight.bytes * held for weight, held, _ in uses if weight.use != "unused"
        ),
        read_bytes=sum(weight.bytes * read for weight, _, read in uses),
        formats=tuple(sorted(by_format, key=lambda name: -by_format[name])),
    )
