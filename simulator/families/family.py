"""What a family of models is to the registry, and how a decoder is put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from roofcast.simulator.architecture import Architecture, Core, Experts, Layer, Numerics, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts

DTYPES: Final[Mapping[str, str]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
}


@dataclass(frozen=True, slots=True)
class Family:
    """One family: which files it reads and how it builds an `Architecture` from them.

    `model_types` are the names files use; `classes` the stems of their `architectures` entries
    (``Llama`` for LlamaForCausalLM). Class defaults come from `defaults_of` (a model_type of
    transformers; else the file's own), overlaid with `defaults`. `layers_at` is the module path of
    the layers in the checkpoint. `core_defaults` says published files leave core sizes out.
    `spellings` are names of fields that only this family uses.
    """

    model_types: tuple[str, ...]
    classes: tuple[str, ...]
    build: Callable[[Config], Architecture]
    defaults_of: str | None = None
    defaults: Mapping[str, object] = field(default_factory=dict)
    layers_at: str = "model.layers"
    core_defaults: bool = False
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Body:
    """The layers of a decoder and what surrounds them."""

    layers: tuple[Layer, ...]
    embeddings: tuple[Weight, ...]
    head: tuple[Weight, ...]
    mtp: tuple[Weight, ...] = ()
    mtp_experts: tuple[Experts, ...] = ()
    hidden_copies: int = 1
    numerics: Numerics | None = None


def architecture(config: Config, body: Body) -> Architecture:
    """The model of a file: its body, with name, dtype and the fields left unread as warnings."""
    dtype = config.text("dtype", "bfloat16").removeprefix("torch.")
    if dtype not in DTYPES:
        raise config.error("dtype", f"must be one of {', '.join(DTYPES)}, not {dtype!r}")
    return Architecture(
        name=config.source,
        family=str(config.fields.get("model_type", "")),
        hidden_size=config.size("hidden_size"),
        vocab_size=config.size("vocab_size"),
        layers=body.layers,
        embeddings=body.embeddings,
        head=body.head,
        dtype=DTYPES[dtype],
        max_context=config.optional_size("max_position_embeddings"),
        mtp=body.mtp,
        mtp_experts=body.mtp_experts,
        hidden_copies=body.hidden_copies,
        numerics=body.numerics,
    )


def layer(
    kind: str,
    *weights: Iterable[Weight],
    cores: tuple[Core, ...] = (),
    experts: Experts | None = None,
) -> Layer:
    """A layer from its parts' weights."""
    return Layer(kind, tuple(weight for group in weights for weight in group), cores, experts)


def embeddings_and_head(
    config: Config,
    *,
    table: str = "model.embed_tokens",
    final_norm: str = "model.norm",
    norm: parts.NormKind = "rms",
    output: str = "lm_head",
    head_bias: bool = False,
    ties: bool = True,
) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """The token table, and the final norm with the output matrix.

    `ties` False where the class builds two tables whatever `tie_word_embeddings` says.
    """
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    tied = config.tied() and ties
    matrix = parts.head(vocab, hidden, tied=tied, bias=head_bias, path=output)
    return (parts.embedding(vocab, hidden, table),), parts.norm(final_norm, hidden, norm) + matrix


def kv_heads(config: Config, heads: int) -> int:
    """KV heads: null and absent mean one for every query head, else they must divide the heads."""
    count = config.optional_size("num_key_value_heads") or heads
    if heads % count:
        raise config.error(
            "num_key_value_heads", f"= {count} must divide num_attention_heads = {heads}"
        )
    return count


def head_dim(config: Config, heads: int, *, field_name: str = "head_dim") -> int:
    """The file's or class's head_dim, else hidden / heads, which must come out whole."""
    given = config.optional_size(field_name) if field_name else None
    if given:
        return given
    hidden = config.size("hidden_size")
    if hidden % heads:
        raise config.error(
            "hidden_size", f"= {hidden} must be a multiple of num_attention_heads = {heads}"
        )
    return hidden // heads
