"""Which layers attend to everything and which to a window: one rule per way of saying it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from roofcast.simulator.config import Config

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CHUNKED: Final = "chunked_attention"
KINDS: Final = (FULL, SLIDING, CHUNKED)

Rule = Callable[[Config], tuple[str, ...]]
DenseRule = Callable[[Config], tuple[bool, ...]]


def all_full(config: Config) -> tuple[str, ...]:
    """Every layer attends to the whole context."""
    return (FULL,) * config.layers


def all_windowed(config: Config) -> tuple[str, ...]:
    """Every layer slides where the file has a window (Mistral, Phi-3, StarCoder2)."""
    return (SLIDING if window(config) else FULL,) * config.layers


def listed(otherwise: Rule) -> Rule:
    """The file's `layer_types`, else another rule."""

    def rule(config: Config) -> tuple[str, ...]:
        given = config.names("layer_types", config.layers, KINDS)
        return otherwise(config) if given is None else given

    return rule


def every(period: int, field: str = "sliding_window_pattern") -> Rule:
    """Every `period`-th layer is full, the rest slide; a file may give the period in `field`."""

    def rule(config: Config) -> tuple[str, ...]:
        step = config.size(field, period) if field else period
        return tuple(FULL if (i + 1) % step == 0 else SLIDING for i in range(config.layers))

    return rule


def late_windows(config: Config) -> tuple[str, ...]:
    """Qwen: layers from `max_window_layers` on slide, and only where `use_sliding_window` is true."""
    slides = config.flag("use_sliding_window") and window(config) is not None
    first = config.count("max_window_layers", config.layers)
    return tuple(SLIDING if slides and i >= first else FULL for i in range(config.layers))


def windows_from(config: Config) -> tuple[str, ...]:
    """Layers from `max_window_layers` on slide where the file has a window (dots)."""
    first = config.count("max_window_layers", config.layers)
    return tuple(SLIDING if window(config) and i >= first else FULL for i in range(config.layers))


def window(config: Config, field: str = "sliding_window") -> int | None:
    """Visible tokens of a windowed layer, the new one included; None where it can never bind."""
    size = config.optional_size(field)
    longest = config.optional_size("max_position_embeddings")
    return None if size is None or (longest and size >= longest) else size


def never_dense(config: Config) -> tuple[bool, ...]:
    """Every layer has experts."""
    return (False,) * config.layers


def first_dense(config: Config) -> tuple[bool, ...]:
    """`mlp_layer_types` where the file has it, else dense before `first_k_dense_replace`."""
    listed_types = config.names("mlp_layer_types", config.layers, ("dense", "sparse"))
    if listed_types is not None:
        return tuple(kind == "dense" for kind in listed_types)
    first = config.count("first_k_dense_replace")
    return tuple(i < first for i in range(config.layers))


def all_dense(config: Config) -> tuple[bool, ...]:
    """No layer has experts."""
    return (True,) * config.layers
