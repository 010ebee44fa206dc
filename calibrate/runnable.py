"""Which architectures the Torch decoder can run, and how it says no to the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from roofcast.calibrate import rope
from roofcast.calibrate.mlp import ACTIVATIONS
from roofcast.hardware.errors import InputError
from roofcast.simulator.architecture import (
    Architecture,
    AttentionCore,
    Core,
    LatentCore,
    Layer,
    Numerics,
)

RUNS: Final = (
    "it runs grouped-query attention, whole or windowed, with dense or routed MLPs: "
    "Llama, Mistral, Mixtral, Qwen 2 and 3, Phi-3, Gemma 1 and 3, StarCoder2, GPT-2, OPT"
)
LAYER_OPS: Final = frozenset({
    "qkv_proj", "o_proj", "gate_up_proj", "down_proj", "router", "norm",
    "shared_gate_up", "shared_down", "shared_gate",
})  # fmt: skip
OUTER_OPS: Final = frozenset({"embedding", "norm", "lm_head"})
STORED: Final = frozenset({"bf16", "fp16", "fp32"})


def check(architecture: Architecture) -> Numerics:
    """The numerics of an architecture that can be run; an `InputError` says what stands against it."""
    reason = next(_obstacles(architecture), None)
    numerics = architecture.numerics
    if reason is None and numerics is None:
        family = architecture.family or "this family"
        reason = f"the arithmetic of {family} is not described"
    if reason is not None or numerics is None:
        raise InputError(
            f"{architecture.name} cannot be run by the Torch decoder: {reason}; {RUNS}"
        )
    rope.inverse_frequencies(numerics.rope_theta or 1.0, 2, dict(numerics.rope_scaling))
    return numerics


def _obstacles(architecture: Architecture) -> Iterator[str]:
    if architecture.hidden_copies != 1:
        yield f"its residual stream is {architecture.hidden_copies} wide"
    for layer in dict.fromkeys(architecture.layers):
        yield from _in_layer(layer, architecture.hidden_size)
    for weight in (*architecture.embeddings, *architecture.head):
        if weight.op not in OUTER_OPS:
            yield f"{weight.path} is not understood"
    for weight in architecture.weights():
        if weight.format.name not in STORED:
            yield f"{weight.path} is stored as {weight.format.name}, and weights must be unquantised"
    numerics = architecture.numerics
    if numerics is not None and numerics.activation not in ACTIVATIONS:
        yield f"activation {numerics.activation!r} is not one of {', '.join(ACTIVATIONS)}"


def _in_layer(layer: Layer, hidden: int) -> Iterator[str]:
    if len(layer.cores) != 1:
        yield f"a layer of kind {layer.kind} holds {len(layer.cores)} mixers, not one attention"
        return
    problem = _in_core(layer.cores[0])
    if problem:
        yield problem
    for weight in layer.weights:
        if weight.op not in LAYER_OPS and weight.use != "unused":
            yield f"{weight.path} is not understood"
    if len(block_norms(layer)) not in {2, 4}:
        yield f"a layer of kind {layer.kind} has {len(block_norms(layer))} norms, not two or four"
    if layer.mixing_flops:
        yield "it mixes several residual streams"
    if layer.experts and (layer.experts.zero or layer.experts.weights[0].columns != hidden):
        yield "its experts are of an unusual kind"
    if layer.experts and any(weight.bias for weight in layer.experts.weights):
        yield "its experts have biases"


def _in_core(core: Core) -> str:
    if isinstance(core, LatentCore):
        return "it uses multi-head latent attention"
    if not isinstance(core, AttentionCore):
        return f"it uses a state-space or linear mixer ({core.kind})"
    if core.selected is not None or core.indexer is not None or core.compression != 1:
        return "it uses sparse attention"
    if core.chunked:
        return "it uses chunked attention"
    if core.value_is_key or not core.stores or core.key_dim != core.value_dim:
        return "its keys and values are shared between layers or of unlike widths"
    return ""


def block_norms(layer: Layer) -> tuple[str, ...]:
    """Paths of the norms around the blocks, in order; those inside a block have dotted paths."""
    return tuple(w.path for w in layer.weights if w.op == "norm" and "." not in w.path)
