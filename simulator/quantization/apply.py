"""Giving the weights of an architecture the formats they are stored in."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.simulator.architecture import Architecture, Experts, Layer, Weight
from roofcast.simulator.formats import find_format
from roofcast.simulator.quantization import ggml_mixes
from roofcast.simulator.quantization.scheme import Quantization

# Where checkpoints keep their MTP layers; a config that excludes any of these means them.
_MTP_HOMES: Final = ("model.layers.{count}.", "mtp.layers.0.", "mtp.0.", "mtp.")


def apply(architecture: Architecture, quantization: Quantization) -> Architecture:
    """The architecture with every weight stored as the checkpoint stores it.

    Layers are numbered as they stand; a module the config leaves alone keeps its format.
    """
    if quantization.default is None and not quantization.rules:
        return replace(architecture, kv_dtype=quantization.kv_dtype or architecture.kv_dtype)

    def stored(weight: Weight, prefix: str) -> Weight:
        found = quantization.format_for(f"{prefix}{weight.path}", weight.use)
        return weight if found is None else replace(weight, format=found)

    def stack(experts: Experts, prefix: str) -> Experts:
        weights = tuple(
            replace(
                stored(replace(weight, path=_expert_path(weight.path)), prefix), path=weight.path
            )
            for weight in experts.weights
        )
        return replace(experts, weights=weights)

    def layer(index: int, given: Layer) -> Layer:
        prefix = f"model.layers.{index}."
        return replace(
            given,
            weights=tuple(stored(weight, prefix) for weight in given.weights),
            experts=stack(given.experts, prefix) if given.experts else None,
        )

    homes = [home.format(count=len(architecture.layers)) for home in _MTP_HOMES]

    def drafted(weight: Weight) -> Weight:
        kept = any(
            quantization.format_for(f"{home}{weight.path}", weight.use) is None for home in homes
        )
        return weight if kept else stored(weight, homes[0])

    def drafted_stack(experts: Experts) -> Experts:
        given = (replace(weight, path=_expert_path(weight.path)) for weight in experts.weights)
        formats = [drafted(weight).format for weight in given]
        pairs = zip(experts.weights, formats, strict=True)
        return replace(experts, weights=tuple(replace(w, format=f) for w, f in pairs))

    return replace(
        architecture,
        layers=tuple(layer(i, given) for i, given in enumerate(architecture.layers)),
        embeddings=tuple(stored(weight, "") for weight in architecture.embeddings),
        head=tuple(stored(weight, "") for weight in architecture.head),
        mtp=tuple(map(drafted, architecture.mtp)),
        mtp_experts=tuple(map(drafted_stack, architecture.mtp_experts)),
        kv_dtype=quantization.kv_dtype or architecture.kv_dtype,
        warnings=architecture.warnings + quantization.warnings,
    )


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
