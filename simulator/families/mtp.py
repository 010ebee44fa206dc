"""Next-token-prediction layers: resident where an engine loads them, never read by a plain step."""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.simulator.architecture import Experts, Layer, Weight
from roofcast.simulator.config import Config
from roofcast.simulator.families import parts


@dataclass(frozen=True, slots=True)
class Mtp:
    """How a family names the parts that join a token to the model's last hidden state.

    `projection` maps two hidden vectors to one; `norms` are the three normalisations around it. The
    defaults are DeepSeek-V3's (arXiv 2412.19437, section 2.2). `field` holds the number of layers.
    """

    projection: str = "eh_proj"
    norms: tuple[str, str, str] = ("enorm", "hnorm", "shared_head.norm")
    field: str = "num_nextn_predict_layers"


def mtp_layers(
    config: Config, mtp: Mtp, block: Layer
) -> tuple[tuple[Weight, ...], tuple[Experts, ...]]:
    """Weights and experts of all MTP layers, each a decoder layer like `block` with a projection.

    Checkpoints repeat embedding and head inside them; engines share those, so they do not count.
    """
    count = config.count(mtp.field)
    hidden = config.size("hidden_size")
    joint = (
        Weight(mtp.projection, "mtp_projection", "other", hidden, 2 * hidden),
        *parts.norms(mtp.norms, hidden),
    )
    experts = (block.experts,) if block.experts else ()
    return (joint + block.weights) * count, experts * count
