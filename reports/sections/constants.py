"""Constants that no device and no fit holds: links, kernels of an engine, memory of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import get_args

from roofcast.hardware import links
from roofcast.hardware.links import Link, Pattern
from roofcast.reports import units
from roofcast.reports.document.blocks import Block, Bullets, Captioned, Fold
from roofcast.reports.sections.cases import Case
from roofcast.reports.tables import Column, Table
from roofcast.simulator import engines
from roofcast.simulator.memory_policy import Policy


def folds(cases: Sequence[Case]) -> Iterator[Fold]:
    """What the cases used, each once."""
    spread = [case for case in cases if case.devices > 1]
    if spread:
        yield _links(spread)
    named = dict.fromkeys(case.points.work.engine for case in cases)
    yield from (_kernels(name) for name in named if name in engines.names())
    policies = {case.points.memory.policy.engine: case.points.memory.policy for case in cases}
    yield from (_memory(policy) for policy in policies.values())


def _links(cases: Sequence[Case]) -> Fold:
    """What collectives reach where a profile has not measured its own."""
    rows: list[tuple[str, int, Pattern, Link]] = []
    for case in cases:
        ranks = case.devices
        for pattern in get_args(Pattern):
            found = (links.inside(case.where.device, ranks, pattern), _across(case, ranks, pattern))
            rows += [(case.label, ranks, pattern, link) for link in found if link is not None]
    media = dict.fromkeys(link.medium for *_, link in rows)
    table = Table(
        (
            Column("device", [label for label, *_ in rows], right=False),
            Column("over", [link.medium.replace("_", "-") for *_, link in rows], right=False),
            Column("ranks", [str(ranks) for _, ranks, *_ in rows]),
            Column("pattern", [pattern.replace("_", "-") for _, _, pattern, _ in rows], False),
            Column("bandwidth", [units.rate(link.bytes_per_s) for *_, link in rows]),
            Column("reached", [units.percent(link.efficiency) for *_, link in rows]),
            Column("latency", [units.seconds(link.latency_s) for *_, link in rows]),
        )
    )
    blocks: tuple[Block, ...] = (
        Captioned("What collectives reach where the profile measured nothing of its own", table),
        Bullets(tuple(f"{name.replace('_', '-')}: {links.source(name)}" for name in media)),
    )
    return Fold("Links between devices", blocks)


def _across(case: Case, ranks: int, pattern: Pattern) -> Link | None:
    return links.across(case.where.device, ranks, pattern)


def _kernels(name: str) -> Fold:
    """How many kernels an engine launches."""
    engine = engines.find_engine(name)
    counts = {key: value for key, value in asdict(engine).items() if key not in ("name", "source")}
    blocks = (
        Captioned(f"Kernels and habits of {name}", _pairs(counts)),
        Bullets((f"Source: {engine.source}",)),
    )
    return Fold(f"Kernels that {name} launches in a step", blocks)


def _memory(policy: Policy) -> Fold:
    """How an engine divides memory."""
    values = {
        key: value for key, value in asdict(policy).items() if key not in ("engine", "sources")
    }
    blocks = (
        Captioned(f"How {policy.engine} divides memory", _pairs(values)),
        Bullets(tuple(f"{line}: {source}" for line, source in policy.sources.items())),
    )
    return Fold(f"Memory that {policy.engine} plans with", blocks)


def _pairs(values: dict[str, object]) -> Table:
    return Table(
        (
            Column("what", [key.replace("_", " ") for key in values], right=False),
            Column("value", [_written(key, value) for key, value in values.items()]),
        )
    )


def _written(key: str, value: object) -> str:
    """
    >>> _written("norm_fused", True), _written("graph_bytes", 0.54e9), _written("norm", 1)
    ('yes', '540 MB', '1')
    """
    if value is None:
        return units.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if key.endswith("_bytes") and value >= 1e3:
            return units.data(float(value))
        return f"{value:,g}" if abs(value) < 1e6 else units.significant(float(value))
    return str(value)
