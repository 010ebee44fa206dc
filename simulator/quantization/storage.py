"""From what a config says of weights and inputs to a `WeightFormat`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofcast.simulator.formats import Activations, WeightFormat

Kind = Literal["int", "float"]
Strategy = Literal["tensor", "row", "group", "block"]


@dataclass(frozen=True, slots=True)
class Weights:
    """Quantised weights: `bits` an element, a scale (and zero point) per tensor, row, group or block.

    `column_bits` and `tensor_bits` as in `WeightFormat`.
    """

    kind: Kind
    bits: int
    strategy: Strategy = "tensor"
    group: int = 0
    block: tuple[int, int] = (0, 0)
    scale_bits: int = 16
    zero_bits: int = 0
    column_bits: int = 0
    tensor_bits: int = 0


@dataclass(frozen=True, slots=True)
class Inputs:
    """Quantised inputs of the same matrices."""

    kind: Kind
    bits: int
    dynamic: bool


def storage(weights: Weights, inputs: Inputs | None) -> WeightFormat:
    """The format of such weights under such inputs (None: they stay in the model's dtype).

    >>> made = storage(Weights("int", 4, "group", 32), None)
    >>> made.name, made.compute, made.bits_per_element
    ('int4', 'bf16', 4.5)
    """
    scale = weights.scale_bits + weights.zero_bits
    rows, columns = {
        "tensor": (0, 0),
        "row": (1, 0),
        "group": (1, weights.group),
        "block": weights.block,
    }[weights.strategy]
    activations: Activations = "none"
    if inputs is not None:
        activations = "dynamic" if inputs.dynamic else "static"
    return WeightFormat(
        name=_name(weights, inputs),
        bits=weights.bits,
        compute=_compute(inputs),
        scale_bits=scale,
        block_rows=rows,
        block_columns=columns,
        column_bits=weights.column_bits,
        tensor_bits=weights.tensor_bits,
        activations=activations,
    )


def _compute(inputs: Inputs | None) -> str:
    """Products run in the inputs' type; 4-bit integers have no unit of their own and run as int8."""
    if inputs is None:
        return "bf16"
    return f"fp{inputs.bits}" if inputs.kind == "float" else "int8"


def _name(weights: Weights, inputs: Inputs | None) -> str:
    """The format's name in `formats.FORMATS`, with the inputs' bits where they are not the usual."""
    if weights.kind == "int":
        base, usual = f"int{weights.bits}", 8 if weights.bits == 8 else 16
    elif weights.bits == 8:
        grouped = weights.strategy == "group" and weights.group == 32
        block = "fp8_block" if weights.strategy == "block" else "fp8"
        base, usual = "mxfp8" if grouped else block, 8
    elif weights.bits == 4 and weights.group == 16:
        base, usual = "nvfp4", 4
    elif weights.bits == 4:
        base, usual = "mxfp4", 16
    else:
        base, usual = f"fp{weights.bits}", weights.bits
    given = inputs.bits if inputs else 16
    return base if given == usual else f"{base}_w{weights.bits}a{given}"
