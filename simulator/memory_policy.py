"""How an engine divides a device's memory (data), and how a user launches it (options)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError

Windows = Literal["ring", "pages", "full"]
FALLBACK = "vllm"
"""The policy of engines that have none of their own, the ideal profile's included."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a user set when starting the engine; None is the engine's own choice.

    `utilisation` is the share of memory it plans with, `token_budget` tokens of one step and
    `max_sequences` sequences at once, `block_tokens` those of a page of the cache. `measured` replaces
    lines of the ledger, in bytes, by name.
    """

    utilisation: float | None = None
    token_budget: int | None = None
    max_sequences: int | None = None
    block_tokens: int | None = None
    windows: Windows | None = None
    measured: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        share = self.utilisation
        if share is not None and not 0 < share <= 1:
            raise InputError(f"memory utilisation must be above 0 and at most 1, not {share:g}")
        for name in ("token_budget", "max_sequences", "block_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True)
class Policy:
    """One engine's division of memory, resolved for a device; see memory_policies.toml."""

    engine: str
    share: float
    of: Literal["capacity", "remaining"]
    token_budget: int
    sequences: int
    block_tokens: int
    windows: Windows
    grouped: bool
    logit_bytes: float
    token_bytes: float
    sequence_bytes: float
    graph_bytes: float
    graphs_inside: bool
    context_bytes: float
    link_bytes: float
    pcie_bytes: float
    sources: Mapping[str, str]

    def source(self, line: str) -> str:
        """Where the number behind a line of the ledger comes from."""
        return self.sources.get(line, "")


def find_policy(engine: str, launch: Launch, device: Accelerator | None = None) -> Policy:
    """The policy of an engine on a device, with what the user set.

    Without a device the sizes are those of the smallest one; how the cache is paged is the same.
    """
    return (
        _policy(engine, launch, device.id, device.memory_bytes)
        if device
        else _policy(engine, launch)
    )


@cache
def _policy(engine: str, launch: Launch, device: str = "", memory_bytes: int = 0) -> Policy:
    name = next(each for each in (engine, engine.partition("-")[0], FALLBACK) if each in _table())
    written = _table()[name]
    size = _size(written["sizes"], device, memory_bytes)
    known = {each.name for each in fields(Policy)}
    policy = Policy(
        engine=name,
        token_budget=launch.token_budget or size["token_budget"],
        sequences=launch.max_sequences or size["sequences"],
        **{key: value for key, value in written.items() if key in known},
    )
    return replace(
        policy,
        share=policy.share if launch.utilisation is None else launch.utilisation,
        block_tokens=launch.block_tokens or policy.block_tokens,
        windows=launch.windows or policy.windows,
    )


def _size(sizes: list[dict[str, Any]], device: str, memory_bytes: int) -> dict[str, Any]:
    """The entry of the largest memory that the device has, the first where none is known."""
    return [
        size
        for size in sizes
        if memory_bytes >= size["from_gib"] * 2**30
        and not ("but" in size and device.startswith(size["but"]))
    ][-1]


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files("roofcast.simulator").joinpath("memory_policies.toml").read_text("utf-8")
    return tomllib.loads(text)
