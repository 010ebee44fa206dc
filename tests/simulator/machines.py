"""Devices and models small enough to work by hand."""

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Parameter, Profile, ideal
from roofcast.simulator.api import Setup
from roofcast.simulator.architecture import (
    Architecture,
    AttentionCore,
    Experts,
    Layer,
    Weight,
)

DEVICE = Accelerator(
    id="toy",
    name="Toy",
    vendor="None",
    kind="gpu",
    memory_capacity_bytes=80 * 10**9,
    memory_bandwidth_bytes_per_s=1e12,
    peak_flops_per_s={"bf16": 1e14},
    scale_up_bytes_per_s=1e11,
    scale_up_max_devices=8,
)
"""1 TB/s, 100 TFLOP/s bf16, 100 GB/s links: a ridge at 100 FLOP per byte."""

H, WIDE, V, HEADS, KV, D = 512, 1024, 1000, 8, 2, 64


def _mixer() -> tuple[Weight, ...]:
    return (
        Weight("self_attn.q_proj", "qkv_proj", "attention", HEADS * D, H, pieces=HEADS),
        Weight("self_attn.k_proj", "qkv_proj", "attention", KV * D, H, pieces=KV),
        Weight("self_attn.v_proj", "qkv_proj", "attention", KV * D, H, pieces=KV),
        Weight("self_attn.o_proj", "o_proj", "attention", H, HEADS * D, pieces=HEADS),
    )


def _dense() -> tuple[Weight, ...]:
    return (
        Weight("mlp.gate_proj", "gate_up_proj", "mlp", WIDE, H, pieces=WIDE),
        Weight("mlp.up_proj", "gate_up_proj", "mlp", WIDE, H, pieces=WIDE),
        Weight("mlp.down_proj", "down_proj", "mlp", H, WIDE, pieces=WIDE),
    )


def _norms() -> tuple[Weight, ...]:
    return tuple(
        Weight(f"{name}_layernorm", "norm", "norms", H, use="vector")
        for name in ("input", "post_attention")
    )


def model(layers: int = 2, window: int | None = None, experts: bool = False) -> Architecture:
    """A small decoder, dense or with 8 experts of which 2 are used."""
    core = AttentionCore(HEADS, KV, D, D, window=window)
    if experts:
        router = Weight("mlp.gate", "router", "router", 8, H)
        routed = Experts(
            8,
            2,
            (
                Weight("mlp.experts.gate_proj", "experts_gate_up", "experts", WIDE, H, pieces=WIDE),
                Weight("mlp.experts.up_proj", "experts_gate_up", "experts", WIDE, H, pieces=WIDE),
                Weight("mlp.experts.down_proj", "experts_down", "experts", H, WIDE, pieces=WIDE),
            ),
        )
        layer = Layer("attention+moe", (*_norms(), *_mixer(), router), (core,), routed)
    else:
        layer = Layer("attention+dense", (*_norms(), *_mixer(), *_dense()), (core,))
    return Architecture(
        name="toy",
        family="toy",
        hidden_size=H,
        vocab_size=V,
        layers=(layer,) * layers,
        embeddings=(Weight("embed", "embedding", "embeddings", V, H, use="lookup", pieces=V),),
        head=(
            Weight("norm", "norm", "norms", H, use="vector"),
            Weight("lm_head", "lm_head", "lm_head", V, H, pieces=V),
        ),
        max_context=4096,
    )


def flat_setup(step_s: float = 0.0) -> Setup:
    """The small dense model on the toy device with the physical floor, plus a time per step."""
    profile = ideal("toy")
    if step_s:
        parameters = {"host.step_s": Parameter(step_s, "s", "assumed")}
        profile = Profile("flat", "toy", "ideal", "by hand", parameters=parameters)
    return Setup(model(), DEVICE, profile)
