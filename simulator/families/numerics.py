"""What the Torch decoder needs beyond shapes: norms, activation, rotary embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roofcast.simulator.architecture import Numerics
from roofcast.simulator.config import Config

if TYPE_CHECKING:
    from roofcast.simulator.families.style import Style

# The default of every rope_theta in transformers 5.24.0 whose class does not say otherwise.
ROPE_THETA = 10_000.0
# The spellings of a norm's epsilon; torch's LayerNorm takes 1e-5 where a family has no field for it.
EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon")
LAYER_NORM_EPS = 1e-5
RMS_NORM_EPS = 1e-6


def numerics_of(config: Config, style: Style) -> Numerics:
    """The arithmetic of a file whose family the Torch decoder can run."""
    rope = _rope(config)
    numerics = Numerics(
        norm="rmsnorm" if style.norm == "rms" else "layernorm",
        norm_eps=norm_eps(config, RMS_NORM_EPS if style.norm == "rms" else LAYER_NORM_EPS),
        activation=activation(config),
        gated_mlp=style.gated,
        rope_theta=_number(config, rope, "rope_theta", ROPE_THETA) if style.rope else None,
        rope_scaling=tuple((key, value) for key, value in rope.items() if key != "rope_theta"),
        rope_fraction=_number(config, rope, "partial_rotary_factor", 1.0),
        normalise_top_k=config.flag("norm_topk_prob", style.moe is not None),
        qk_norm=style.qk_norm == "head",
    )
    return style.arithmetic(config, numerics)


def gemma(config: Config, numerics: Numerics) -> Numerics:
    """Gemma 1 and 3: scaled embeddings, norms stored less 1, and in 3 windows with their own rope."""
    made = replace(
        numerics,
        activation=config.text("hidden_activation", numerics.activation),
        embedding_scale=config.size("hidden_size") ** 0.5,
        norm_offset=1.0,
    )
    if config.raw("query_pre_attn_scalar", None) is None:
        return made
    by_kind = config.raw("rope_parameters", None)
    local = by_kind.get("sliding_attention") if isinstance(by_kind, dict) else None
    return replace(
        made,
        attention_scale=config.number("query_pre_attn_scalar") ** -0.5,
        local_rope_theta=_number(config, local, "rope_theta", ROPE_THETA)
        if isinstance(local, dict)
        else config.number("rope_local_base_freq", ROPE_THETA),
    )


def norm_eps(config: Config, otherwise: float) -> float:
    """The epsilon of a file's norms under whichever name its family uses."""
    given = [config.number(name, otherwise) for name in EPSILONS if config.raw(name, None)]
    return given[0] if given else otherwise


def activation(config: Config) -> str:
    """The activation of a file's MLPs, by its transformers name."""
    return config.text("hidden_act", config.text("activation_function", "silu"))


def _rope(config: Config) -> dict[str, object]:
    rope = config.raw("rope_parameters", None) or config.raw("rope_scaling", None) or {}
    if not isinstance(rope, dict):
        raise config.error("rope_scaling", "must be an object or null")
    whole = rope.get("full_attention")  # newer files hold one dictionary for each kind of layer
    return whole if isinstance(whole, dict) else rope


def _number(config: Config, rope: dict[str, object], name: str, otherwise: float) -> float:
    """A number that older files hold at the top and newer ones among the rope parameters."""
    value = rope.get(name) or config.raw(name, None) or otherwise
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise config.error(name, "must be a number")
    return float(value)
