"""llama.cpp's mixed quantisations (q4_k_m and its like): which tensor gets which type.

A name such as Q4_K_M is a recipe: most matrices in Q4_K, the more sensitive ones in Q6_K, the output
in Q6_K. The recipes are those of llama.cpp's src/llama-quant.cpp, llama_tensor_get_type (MIT), without
an importance matrix; norms, biases and routers stay in f32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from roofcast.simulator.architecture import Architecture, AttentionCore, Layer, Weight
from roofcast.simulator.formats import FORMATS, FP16, FP32, WeightFormat
from roofcast.simulator.quantization.patterns import canonical

BASES: Final = {  # the type of every matrix no rule names
    "q2_k": "q2_k",
    "q3_k_s": "q3_k",
    "q3_k_m": "q3_k",
    "q3_k_l": "q3_k",
    "q4_k_s": "q4_k",
    "q4_k_m": "q4_k",
    "q5_k_s": "q5_k",
    "q5_k_m": "q5_k",
    "q6_k": "q6_k",
    "q4_0": "q4_0",
    "q4_1": "q4_1",
    "q5_0": "q5_0",
    "q5_1": "q5_1",
    "q8_0": "q8_0",
}
_NARROW: Final = {  # for rows that are no whole blocks of 256
    "q2_k": "q4_0",
    "q3_k": "q4_0",
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
}
_ROLES: Final = {
    "v_proj": "v",
    "qkv_proj": "v",
    "query_key_value": "v",
    "Wqkv": "v",
    "c_attn": "v",
    "kv_b_proj": "v",
    "k_proj": "k",
    "o_proj": "o",
    "out_proj": "o",
    "dense": "o",
    "down_proj": "down",
    "fc2": "down",
    "fc_out": "down",
    "dense_4h_to_h": "down",
    "output_linear": "down",
    "w2": "down",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor stands: layer `index` of `count`, in a model of so many experts."""

    index: int
    count: int
    query_groups: int
    experts: int

    @property
    def sensitive(self) -> bool:
        """Layers given more bits: the first and last eighth, and every third between."""
        i, eighth = self.index, self.count // 8
        return i < eighth or i >= 7 * self.count // 8 or (i - eighth) % 3 == 2

    @property
    def is_70b(self) -> bool:
        """80 layers with grouped queries: llama.cpp's class of 70B models."""
        return self.count == 80 and self.query_groups > 1


def mixed(architecture: Architecture, mix: str) -> Architecture:
    """The architecture as llama.cpp would quantise it under that recipe."""
    base = BASES[mix]
    count = len(architecture.layers)
    tied = any(w.part == "lm_head" and not w.resident for w in architecture.head)

    def layer(index: int, given: Layer) -> Layer:
        experts = given.experts
        place = _Place(index, count, _query_groups(given), experts.count if experts else 1)

        def stored(weight: Weight) -> Weight:
            return _stored(weight, _type(mix, base, _role(weight), place))

        return replace(
            given,
            weights=tuple(map(stored, given.weights)),
            experts=replace(experts, weights=tuple(map(stored, experts.weights)))
            if experts
            else None,
        )

    output = "q8_0" if base == "q8_0" else "q6_k"
    return replace(
        architecture,
        layers=tuple(layer(i, given) for i, given in enumerate(architecture.layers)),
        embeddings=tuple(_outer(w, output if tied else base) for w in architecture.embeddings),
        head=tuple(_outer(w, output) for w in architecture.head),
    )


def _type(mix: str, base: str, role: str, place: _Place) -> str:
    rules = {"v": _values, "k": _keys, "o": _outputs, "down": _down}
    return rules[role](mix, base, place) if role in rules else base


def _values(mix: str, base: str, place: _Place) -> str:
    chosen = base
    if mix == "q2_k":
        chosen = "q4_k" if place.query_groups >= 4 else "q3_k"
    elif mix == "q3_k_m":
        chosen = "q5_k" if place.index < 2 else "q4_k"
    elif mix == "q3_k_l" or (mix == "q4_k_s" and place.index < 4):
        chosen = "q5_k"
    elif mix in ("q4_k_m", "q5_k_m") and place.sensitive:
        chosen = "q6_k"
    if place.is_70b and chosen in ("q3_k", "q4_k"):
        chosen = "q5_k"
    return "q8_0" if place.experts == 8 else chosen


def _keys(mix: str, base: str, place: _Place) -> str:
    return "q8_0" if place.experts == 8 else base


def _outputs(mix: str, base: str, place: _Place) -> str:
    if place.experts == 8:
        return "q5_k" if mix in ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m") else base
    return {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k"}.get(mix, base)


def _down(mix: str, base: str, place: _Place) -> str:
    if mix == "q3_k_m":
        return "q5_k" if place.index < place.count // 16 else "q4_k"
    if mix in ("q4_k_m", "q5_k_m") and place.sensitive:
        return "q6_k"
    if mix == "q4_k_s" and place.index < place.count // 8:
        return "q5_k"
    return {"q2_k": "q3_k", "q3_k_l": "q5_k"}.get(mix, base)


def _role(weight: Weight) -> str:
    leaf = canonical(weight.path).rsplit(".", 1)[-1]
    if leaf == "c_proj":  # GPT-2 names both its output matrices so
        return "o" if weight.part == "attention" else "down"
    return _ROLES.get(leaf, "")


def _stored(weight: Weight, kind: str) -> Weight:
    if weight.use != "matmul" or weight.part in ("router", "norms"):
        return replace(weight, format=FP32)
    return replace(weight, format=_fitting(kind, weight.columns))


def _outer(weight: Weight, kind: str) -> Weight:
    if weight.use == "vector":
        return replace(weight, format=FP32)
    return replace(weight, format=_fitting(kind, weight.columns))


def _fitting(kind: str, columns: int) -> WeightFormat:
    """The type, or the one llama.cpp falls back to where rows are no whole blocks."""
    if columns % 256 and kind in _NARROW:
        kind = _NARROW[kind]
    return FORMATS[kind] if columns % 32 == 0 else FP16


def _query_groups(layer: Layer) -> int:
    """Query heads that share a KV head."""
    return next((core.query_heads // core.kv_heads for core in _attentions(layer)), 1)


def _attentions(layer: Layer) -> Iterator[AttentionCore]:
    yield from (core for core in layer.cores if isinstance(core, AttentionCore))
