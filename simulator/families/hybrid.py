"""What hybrid stacks have in common: how files name their mixers, and layers built once a kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar

from roofcast.simulator.architecture import Layer
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts
from roofcast.simulator.families.family import head_dim, kv_heads
from roofcast.simulator.families.patterns import FULL

LINEAR: Final = "linear_attention"
# transformers 5 renamed what earlier files call mamba and attention.
RENAMED: Final = {"mamba": LINEAR, "attention": FULL}
DEFAULT_NAMES: Final = parts.Names()
STATE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}

Key = TypeVar("Key", bound=Hashable)


def stack(keys: Iterable[Key], make: Callable[[Key], Layer]) -> tuple[Layer, ...]:
    """One layer per key; equal keys share one value, so that equal layers are costed once."""
    order = tuple(keys)
    built = {key: make(key) for key in dict.fromkeys(order)}
    return tuple(built[key] for key in order)


def mixers(
    config: Config, allowed: Sequence[str], otherwise: Callable[[], tuple[str, ...]]
) -> tuple[str, ...]:
    """The file's `layer_types` in today's names, each one of `allowed`, else `otherwise`."""
    old = tuple(name for name, new in RENAMED.items() if new in allowed)
    given = config.names("layer_types", config.layers, (*allowed, *old))
    return otherwise() if given is None else tuple(RENAMED.get(name, name) for name in given)


def every_full(config: Config, interval: int) -> tuple[str, ...]:
    """Full attention in every `interval`-th layer, a linear mixer in the others."""
    return tuple(FULL if (i + 1) % interval == 0 else LINEAR for i in range(config.layers))


def state_bytes(config: Config, field: str) -> int:
    """Bytes of one element of the recurrent state; float32 unless the file's `field` differs."""
    dtype = config.text(field, "float32")
    if dtype not in STATE_BYTES:
        raise config.error(field, f"must be one of {', '.join(STATE_BYTES)}, not {dtype!r}")
    return STATE_BYTES[dtype]


def fits(config: Config, field: str, given: int, wanted: int, meaning: str) -> None:
    """Refuse sizes that contradict each other."""
    if given != wanted:
        raise config.error(field, f"gives {given}, but {meaning} = {wanted}")


def top_k(config: Config, experts: int, field: str = "num_experts_per_tok") -> int:
    """Experts a token picks, at most as many as there are."""
    picked = config.size(field)
    if picked > experts:
        raise config.error(field, f"= {picked} is more than the model's {experts} experts")
    return picked


def gqa(
    config: Config,
    *,
    bias: bool = False,
    names: parts.Names = DEFAULT_NAMES,
    qk_norm: parts.QkNorm = "none",
    query_copies: int = 1,
) -> parts.Attention:
    """Grouped-query attention as most hybrids have it: one bias switch for all four projections."""
    heads = config.size("num_attention_heads")
    width = head_dim(config, heads)
    return parts.Attention(
        hidden=config.size("hidden_size"),
        query_heads=heads,
        kv_heads=kv_heads(config, heads),
        key_dim=width,
        value_dim=width,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=qk_norm,
        query_copies=query_copies,
        names=names,
    )
