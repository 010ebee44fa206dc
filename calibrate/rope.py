"""Rotary position embedding: frequencies with their scalings, tables, and the rotation itself.

Source: RoFormer, arXiv 2104.09864, section 3.2; the halves-apart layout of Hugging Face checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from roofcast.hardware.errors import InputError

SCALINGS: Final = ("default", "linear", "llama3")


def scaling_name(scaling: Mapping[str, object]) -> str:
    """The kind of scaling a config's rope dictionary asks for."""
    return str(scaling.get("rope_type") or scaling.get("type") or "default")


def inverse_frequencies(theta: float, width: int, scaling: Mapping[str, object]) -> Tensor:
    """Radians per position of each of the width / 2 rotated pairs: theta^(-2 i / width), scaled.

    >>> inverse_frequencies(10_000.0, 4, {}).tolist()
    [1.0, 0.009999999776482582]
    """
    plain = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    match scaling_name(scaling):
        case "default":
            return plain
        case "linear":
            return plain / _number(scaling, "factor")
        case "llama3":
            return _llama3(plain, scaling)
        case other:
            raise InputError(
                f"rope scaling {other!r} is not run by the Torch decoder; "
                f"it runs {', '.join(SCALINGS)}"
            )


def _llama3(plain: Tensor, scaling: Mapping[str, object]) -> Tensor:
    """Llama 3.1: long wavelengths stretched by `factor`, short ones kept, a ramp in between.

    Source: transformers 5.24.0, modeling_rope_utils.py, _compute_llama3_parameters.
    """
    original = _number(scaling, "original_max_position_embeddings")
    low, high = _number(scaling, "low_freq_factor"), _number(scaling, "high_freq_factor")
    turns = original * plain / (2 * math.pi)  # how often a pair turns within the original context
    ramp = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (ramp + (1 - ramp) / _number(scaling, "factor"))


def _number(scaling: Mapping[str, object], key: str) -> float:
    value = scaling.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"rope scaling needs a number as {key!r}, not {value!r}")
    return float(value)


def table(frequencies: Tensor, positions: int) -> Tensor:
    """[positions, 2, width] float32: cos, and sin with the sign `rotate` needs."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)), dim=1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + width/2}) by its angle; what lies beyond the width stays.

    (a, b) -> (a cos - b sin, b cos + a sin), written as x cos + roll(x) (-sin, sin): three kernels
    instead of seven.
    """
    width = cos.shape[-1]
    turned = x[..., :width]
    made = torch.addcmul(turned * cos, turned.roll(width // 2, dims=-1), sin)
    return made if width == x.shape[-1] else torch.cat((made, x[..., width:]), dim=-1)
