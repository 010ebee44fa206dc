"""What the Torch decoder needs beyond shapes: norms, activation, rotary embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.simulator.architecture import Numerics
from roofcast.simulator.config import Config

if TYPE_CHECKING:
    from roofcast.simulator.families.style import Style

# The default of every rope_theta in transformers 5.24.0 whose class does not say otherwise.
ROPE_THETA = 10_000.0


def numerics_of(config: Config, style: Style) -> Numerics:
    """The arithmetic of a file whose family the Torch decoder can run."""
    rope = config.raw("rope_parameters", None) or config.raw("rope_scaling", None) or {}
    if not isinstance(rope, dict):
        raise config.error("rope_scaling", "must be an object or null")
    theta = rope.get("rope_theta") or config.raw("rope_theta", None) or ROPE_THETA
    if isinstance(theta, bool) or not isinstance(theta, int | float):
        raise config.error("rope_theta", "must be a number")
    return Numerics(
        norm="rmsnorm" if style.norm == "rms" else "layernorm",
        norm_eps=config.number("rms_norm_eps", 1e-6),
        activation=config.text("hidden_act", "silu"),
        gated_mlp=style.gated,
        rope_theta=float(theta),
        rope_scaling=tuple((key, value) for key, value in rope.items() if key != "rope_theta"),
        normalise_top_k=config.flag("norm_topk_prob", style.moe is not None),
        qk_norm=style.qk_norm == "head",
    )
