"""From the word a source uses for its weights to the formats of an architecture's tensors.

A checkpoint whose own config states a format of that family is taken at its word. Otherwise a sibling
checkpoint is looked for, and else the recipe that its publisher uses is applied by part of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from roofcast.hardware.errors import unknown
from roofcast.simulator.architecture import Architecture, Experts, Layer, StateCore, Weight
from roofcast.simulator.formats import WeightFormat, find_format
from roofcast.simulator.models import load
from roofcast.simulator.quantization import requantise

# Formats that make up each family, as checkpoints name them.
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "fp8": ("fp8", "fp8_static", "fp8_block", "mxfp8"),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("mxfp4", "mxfp4_w4a8"),
}
_WORDS: Final[Mapping[str, str]] = {
    "fp8_block": "fp8",
    "moe=fp8_block,gemm=fp8": "fp8",
    "fp4": "nvfp4",
}
# Words that name one format whatever the checkpoint: format, and the parts it is used for.
_PLAIN: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "int8": "int8_w8a16",
    "int8_bnb": "int8_w8a16",
    "int8_wo": "int8_w8a16",
    "int8_wo_gptq": "int8_w8a16",
    "int4": "int4",
    "int4_wo_awq": "awq",
    "int4_wo_gptq": "gptq",
    "int4_wo_g128": "int4",
    "int4_wo_g32": "int4",
    "gguf_q4_0": "q4_0",
    "gguf_q8_0": "q8_0",
    "gguf_mxfp4": "mxfp4",
    "gguf_q4_k_m": "q4_k_m",
}
_EVERYWHERE: Final = ("attention", "linear_attention", "mlp", "experts", "shared_experts", "other")
# ModelOpt's NVFP4 checkpoints of mixture-of-experts models leave attention in bf16
# (nvidia/DeepSeek-R1-NVFP4, Kimi-K2.5-NVFP4: experts, shared experts and dense MLPs only).
_EXPERTS_ONLY: Final = ("mlp", "experts", "shared_experts")


def stored(path: Path | str, word: str) -> Architecture:
    """The architecture of a config file with its weights as `word` says; UnknownNameError if odd."""
    key = word.strip().lower()
    checkpoint = load(path)
    if not key:
        return checkpoint
    if key in _PLAIN:
        return requantise(checkpoint, _PLAIN[key])
    family = _WORDS.get(key, key)
    if family not in _FAMILIES:
        raise unknown("weight dtype", word, [*_PLAIN, *_FAMILIES, *_WORDS])
    if _states(checkpoint, family):
        return checkpoint
    sibling = _sibling(path) if isinstance(path, Path) and family == "nvfp4" else None
    if sibling is not None and sibling.is_file() and _states(load(sibling), family):
        return load(sibling)
    return _by_recipe(checkpoint, family, block="fp8_block" in key)


def with_expert_format(architecture: Architecture, name: str) -> Architecture:
    """The architecture with its routed experts stored and multiplied as the format `name`."""
    made = find_format(name)

    def layer(given: Layer) -> Layer:
        if given.experts is None:
            return given
        weights = tuple(replace(weight, format=made) for weight in given.experts.weights)
        return replace(given, experts=replace(given.experts, weights=weights))

    return replace(architecture, layers=tuple(map(layer, architecture.layers)))


def _sibling(path: Path) -> Path:
    """The config of NVIDIA's NVFP4 checkpoint of the same model, beside its own."""
    return path.with_name(f"nvidia--{path.stem.partition('--')[2]}-NVFP4.json")


def with_state_dtype(architecture: Architecture, element_bytes: int) -> Architecture:
    """The architecture with recurrent states of `element_bytes` an element."""

    def layer(given: Layer) -> Layer:
        cores = tuple(
            replace(core, state_element_bytes=element_bytes)
            if isinstance(core, StateCore)
            else core
            for core in given.cores
        )
        return replace(given, cores=cores)

    return replace(architecture, layers=tuple(map(layer, architecture.layers)))


def _states(architecture: Architecture, family: str) -> bool:
    names = {weight.format.name for layer in architecture.layers for weight in _all(layer)}
    return any(name in names for name in _FAMILIES[family])


def _all(layer: Layer) -> tuple[Weight, ...]:
    return layer.weights + (layer.experts.weights if layer.experts else ())


def _by_recipe(architecture: Architecture, family: str, block: bool) -> Architecture:
    """fp8: every matrix, scales static as ModelOpt's checkpoints have them unless in blocks.

    Checkpoints whose experts have blocks have them everywhere (Qwen's, DeepSeek's, MiniMax's).
    """
    routed = any(layer.experts for layer in architecture.layers)
    if family == "fp8":
        made = (
            find_format("fp8_block") if block else replace(find_format("fp8"), activations="static")
        )
        return _restored(architecture, made, _EVERYWHERE)
    parts = _EXPERTS_ONLY if routed else _EVERYWHERE
    kv = "fp8" if family == "nvfp4" else architecture.kv_dtype
    made = find_format(family)
    return replace(_restored(architecture, made, parts), kv_dtype=kv)


def _restored(
    architecture: Architecture, made: WeightFormat, parts: tuple[str, ...]
) -> Architecture:
    plain = requantise(architecture, architecture.dtype)

    def stored_as(weight: Weight) -> Weight:
        return (
            replace(weight, format=made)
            if weight.use == "matmul" and weight.part in parts
            else weight
        )

    def stack(experts: Experts) -> Experts:
        return replace(experts, weights=tuple(map(stored_as, experts.weights)))

    layers = tuple(
        replace(
            layer,
            weights=tuple(map(stored_as, layer.weights)),
            experts=stack(layer.experts) if layer.experts else None,
        )
        for layer in plain.layers
    )
    return replace(plain, layers=layers)
