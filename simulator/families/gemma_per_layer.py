"""What Gemma 3n and Gemma 4 share: per-layer embeddings, and layers that reuse earlier caches."""

from __future__ import annotations

from roofcast.simulator.architecture import Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts


def per_layer_tables(config: Config, width: int) -> tuple[Weight, ...]:
    """The per-layer embedding table (a lookup, not read whole) and what mixes the hidden state in."""
    hidden, rows = config.size("hidden_size"), config.layers * width
    vocab = config.size("vocab_size_per_layer_input")
    at = "model.per_layer"
    return (
        parts.embedding(vocab, rows, "model.embed_tokens_per_layer"),
        Weight(f"{at}_model_projection", "per_layer_model_proj", "embeddings", rows, hidden),
        *parts.norm(f"{at}_projection_norm", width),
    )


def per_layer_gate(hidden: int, width: int) -> tuple[Weight, ...]:
    """What adds a token's per-layer embedding to one layer's output."""
    return (
        Weight("per_layer_input_gate", "per_layer_gate", "other", width, hidden),
        Weight("per_layer_projection", "per_layer_proj", "other", hidden, width),
        *parts.norm("post_per_layer_input_norm", hidden),
    )


def reusing(config: Config, kinds: tuple[str, ...]) -> tuple[bool, ...]:
    """Which layers read the keys and values of an earlier layer of their kind: the last ones."""
    shared, count = config.count("num_kv_shared_layers"), config.layers
    if shared > count:
        raise config.error("num_kv_shared_layers", f"= {shared} is more than the {count} layers")
    first = count - shared
    if shared and set(kinds[first:]) - set(kinds[:first]):
        raise config.error(
            "num_kv_shared_layers",
            f"= {shared} leaves a kind of layer without one whose cache the last layers could read",
        )
    return tuple(i >= first for i in range(count))
