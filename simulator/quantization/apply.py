"""Giving the weights of an architecture the formats they are stored in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, Experts, Layer, Use, Weight
from roofcast.simulator.formats import WeightFormat, find_format
from roofcast.simulator.quantization import ggml_mixes
from roofcast.simulator.quantization.scheme import Quantization

# Where checkpoints keep their MTP layers; a config that excludes any of these means them.
_MTP_HOMES: Final = ("model.layers.{count}.", "mtp.layers.0.", "mtp.0.", "mtp.")


_Find = Callable[[str, Use], WeightFormat | None]


def apply(architecture: Architecture, quantization: Quantization) -> Architecture:
    """The architecture with every weight stored as the checkpoint stores it.

    Layers are numbered as they stand; a module the config leaves alone keeps its format.
    """
    find = quantization.format_for

    def within(home: str) -> _Find:
        return lambda path, use: find(f"{home}{path}", use)

    homes = [within(home.format(count=len(architecture.layers))) for home in _MTP_HOMES]

    def draft(path: str, use: Use) -> WeightFormat | None:
        formats = [home(path, use) for home in homes]
        return None if None in formats else formats[0]

    return replace(
        architecture,
        layers=tuple(
            _layer(layer, within(f"model.layers.{index}."))
            for index, layer in enumerate(architecture.layers)
        ),
        embeddings=_stored(architecture.embeddings, find),
        head=_stored(architecture.head, find),
        mtp=_stored(architecture.mtp, draft),
        mtp_experts=tuple(_stack(experts, draft) for experts in architecture.mtp_experts),
        kv_dtype=quantization.kv_dtype or architecture.kv_dtype,
        warnings=architecture.warnings + quantization.warnings,
    )


def _layer(layer: Layer, find: _Find) -> Layer:
    experts = _stack(layer.experts, find) if layer.experts else None
    return replace(layer, weights=_stored(layer.weights, find), experts=experts)


def _stored(weights: Iterable[Weight], find: _Find) -> tuple[Weight, ...]:
    return tuple(_as(weight, find(weight.path, weight.use)) for weight in weights)


def _stack(experts: Experts, find: _Find) -> Experts:
    made = (_as(w, find(_expert_path(w.path), w.use)) for w in experts.weights)
    return replace(experts, weights=tuple(made))


def _as(weight: Weight, found: WeightFormat | None) -> Weight:
    return weight if found is None else replace(weight, format=found)


def _expert_path(path: str) -> str:
    """The path of one expert's module, with a star for its number.

    >>> _expert_path("mlp.experts.up_proj")
    'mlp.experts.*.up_proj'
    """
    before, found, after = path.rpartition("experts.")
    return path if not found or ".*." in path else f"{before}experts.*.{after}"


# What a what-if in fewer bits leaves alone: quantising these costs accuracy and gains little, and no
# published recipe of vLLM, llm-compressor or ModelOpt does it by default.
_LEFT_ALONE: Final = ("lm_head", "embeddings", "router", "norms")


def requantise(architecture: Architecture, weight_dtype: str) -> Architecture:
    """What if: every matrix stored as `weight_dtype`, whatever the checkpoint says.

    A plain float type (bf16, fp16, fp32) goes for every tensor. A llama.cpp recipe (q4_k_m, q8_0)
    goes for all that llama.cpp quantises, embeddings and lm_head too. Any other format leaves
    lm_head, embeddings, routers, norms and vectors in the model's own dtype. Raises
    UnknownNameError for a name that is neither.
    """
    recipe = weight_dtype.strip().lower()
    if recipe in ggml_mixes.BASES:
        return ggml_mixes.mixed(architecture, recipe)
    made = find_format(weight_dtype)
    own = find_format(architecture.dtype)

    def stored(weight: Weight) -> Weight:
        if made.plain:
            return replace(weight, format=made)
        small = weight.use == "matmul" and weight.part not in _LEFT_ALONE
        return replace(weight, format=made if small else own)

    def stack(experts: Experts) -> Experts:
        return replace(experts, weights=tuple(map(stored, experts.weights)))

    seen: dict[Layer, Layer] = {}
    for given in architecture.layers:
        if given not in seen:
            seen[given] = replace(
                given,
                weights=tuple(map(stored, given.weights)),
                experts=stack(given.experts) if given.experts else None,
            )
    return replace(
        architecture,
        layers=tuple(seen[given] for given in architecture.layers),
        embeddings=tuple(map(stored, architecture.embeddings)),
        head=tuple(map(stored, architecture.head)),
        mtp=tuple(map(stored, architecture.mtp)),
        mtp_experts=tuple(map(stack, architecture.mtp_experts)),
    )
