"""Rows of a kernel table as operators: the same values a forecast costs, one array entry a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.kernel_tables.routing import expert_load
from roofcast.calibrate.kernel_tables.table import Table
from roofcast.simulator.engines import Engine
from roofcast.simulator.formats import WeightFormat, element_bytes, find_format
from roofcast.simulator.passes import Operator
from roofcast.simulator.workload import Array

_BF16: Final = 2.0
LATENT, ROPE, NOPE, VALUE = 512, 64, 128, 128  # DeepSeek-V2/V3, arXiv 2405.04434, table 2
_LATENT_HEADS_A_BLOCK: Final = 64
_TILE_ROWS, _TILE_COLUMNS = 64, 128  # as the simulator counts an expert's tiles
_STATE_BYTES: Final = 4.0

FORMATS: Final = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int8_wo": "int8_w8a16",
    "int4_wo": "int4",
    "sq": "int8",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4_w4a8",
}
"""Names the tables give formats. gpt-oss runs W4A8 on Blackwell, though its checkpoint says W4A16."""


Builder = Callable[[Table, str, Engine], tuple[Operator, ...]]
Chosen = NDArray[np.bool_] | NDArray[np.intp]


@dataclass(frozen=True)
class Rows:
    """Operators of a table's rows, what they took, and which of them err together.

    `cached_bytes` is what a repeated measurement reads again, against the size of the L2 cache.
    """

    operators: tuple[Operator, ...]
    measured_s: Array
    shapes: NDArray[np.intp]
    cached_bytes: Array

    def where(self, chosen: Chosen) -> Rows:
        """Some of the rows."""
        size = self.measured_s.shape

        def cut(value: object) -> object:
            if isinstance(value, np.ndarray) and value.shape == size:
                return value[chosen]
            return value

        fields = Operator.__dataclass_fields__
        parts = tuple(
            replace(part, **{name: cut(getattr(part, name)) for name in fields})  # type: ignore[arg-type]
            for part in self.operators
        )
        return Rows(parts, self.measured_s[chosen], self.shapes[chosen], self.cached_bytes[chosen])


def _quantise(stored: WeightFormat, engine: Engine) -> float:
    return engine.quantise_dynamic if stored.activations == "dynamic" else 0.0


def gemm(table: Table, dtype: str, engine: Engine) -> tuple[Operator, ...]:
    """y[m, n] = x[m, k] w[n, k]; formats with quantised activations quantise them in the row too."""
    m, n, k = table["m"], table["n"], table["k"]
    stored = find_format(FORMATS[dtype])
    weights = n * k * (stored.bits_per_element / 8)
    operator = Operator(
        name="product",
        kind="gemm",
        dtype=stored.compute,
        format=stored.name,
        launches=1.0 + _quantise(stored, engine),
        flops=2.0 * m * n * k,
        weight_bytes=weights,
        activation_bytes=m * (n + k) * _BF16,
        rows=m,
        depth=k,
    )
    return (operator,)


def attention(table: Table, dtype: str, engine: Engine) -> tuple[Operator, ...]:
    """One new token a sequence: append its K and V, attend over all `kv_tokens` or the window."""
    batch, heads, kv_heads = table["batch"], table["heads"], table["kv_heads"]
    window, size = table["window"], table["head_dim"]
    seen = np.where(window > 0, np.minimum(table["kv_tokens"], window), table["kv_tokens"])
    cell = element_bytes(dtype)
    windowed = bool(np.all(window > 0))
    operator = Operator(
        name="window_attention" if windowed else "attention",
        kind="attention",
        dtype="bf16",
        format=dtype,
        launches=engine.attention + engine.append,
        flops=4.0 * batch * heads * seen * size,
        kv_read_bytes=batch * seen * kv_heads * (2 * size * cell),
        kv_write_bytes=batch * kv_heads * (2 * size * cell),
        activation_bytes=batch * heads * (2 * size * _BF16),
        rows=batch,
        depth=seen,
        blocks=batch * kv_heads,
    )
    return (operator,)


def latent(table: Table, dtype: str, engine: Engine) -> tuple[Operator, ...]:
    """The core of multi-head latent attention: all heads over one latent and its rope part."""
    batch, heads, seen = table["batch"], table["heads"], table["kv_tokens"]
    entry = (LATENT + ROPE) * element_bytes(dtype)
    operator = Operator(
        name="latent_attention",
        kind="attention",
        dtype="bf16",
        format=dtype,
        launches=engine.attention + engine.append,
        flops=2.0 * batch * heads * seen * (2 * LATENT + ROPE),
        kv_read_bytes=batch * seen * entry,
        kv_write_bytes=batch * entry,
        activation_bytes=batch * heads * ((2 * LATENT + ROPE) * _BF16),
        rows=batch,
        depth=seen,
        blocks=batch * np.ceil(heads / _LATENT_HEADS_A_BLOCK),
    )
    return (operator,)


def absorbed(table: Table, dtype: str, engine: Engine) -> tuple[Operator, ...]:
    """The two batched products that absorb W_UK and W_UV, before and behind the core, as one."""
    heads, tokens = table["heads"], table["tokens"]
    stored = find_format(FORMATS[dtype])
    matrix = heads * float(LATENT * (NOPE + VALUE))
    operator = Operator(
        name="kv_b_absorb",
        kind="gemm",
        dtype=stored.compute,
        format=stored.name,
        launches=1.0 + _quantise(stored, engine),
        flops=2.0 * tokens * matrix,
        weight_bytes=matrix * (stored.bits_per_element / 8),
        activation_bytes=tokens * heads * ((2 * LATENT + NOPE + VALUE) * _BF16),
        rows=tokens,
        depth=np.full(len(table), float(LATENT)),
    )
    return (operator,)


def experts(table: Table, dtype: str, engine: Engine) -> tuple[Operator, ...]:
    """Routing, both grouped products and the weighted sum on the busiest rank, as two operators."""
    hidden, inter = table["hidden"], table["inter"] / table["tp"]
    stored = find_format(FORMATS[dtype])
    touched, routed = expert_load(table)
    tall = routed / np.maximum(touched, 1.0)
    gated = 1.0 if "nongated" in str(table["kernel_source"][0]) else 2.0

    whole = table["tokens"] * hidden  # every rank reads and writes all tokens, routed here or not

    def product(name: str, inputs: Array, outputs: Array, around: float) -> Operator:
        matrix = inputs * outputs
        return Operator(
            name=name,
            kind="experts",
            dtype=stored.compute,
            format=stored.name,
            launches=1.0 + around + _quantise(stored, engine),
            flops=2.0 * routed * matrix,
            weight_bytes=touched * matrix * (stored.bits_per_element / 8),
            activation_bytes=(routed * (inputs + outputs) + whole) * _BF16,
            rows=tall,
            depth=inputs,
            blocks=touched * np.ceil(tall / _TILE_ROWS) * np.ceil(outputs / _TILE_COLUMNS),
        )

    return (
        product("experts_gate_up", hidden, gated * inter, engine.route),
        product("experts_down", inter, hidden, engine.combine),
    )


def state(table: Table, mixer: str, engine: Engine) -> tuple[Operator, ...]:
    """Convolution and state update of a delta-rule mixer: both states read and written once."""
    del engine
    keys, values = table["num_k_heads"], table["num_v_heads"]
    key_size, value_size = table["head_k_dim"], table["head_v_dim"]
    channels = 2.0 * keys * key_size + values * value_size
    held = values * key_size * value_size * _STATE_BYTES + channels * table["d_conv"] * _BF16
    operator = Operator(
        name=mixer,
        kind="state",
        dtype="bf16",
        format="state",
        launches=2.0,
        kv_read_bytes=table["batch"] * held,
        kv_write_bytes=table["batch"] * held,
        rows=table["batch"],
    )
    return (operator,)


def collective(table: Table, dtype: str, engine: Engine) -> tuple[Operator, ...]:
    """A sum over `peers` ranks of one message; ring bytes 2 (n - 1) / n each way."""
    del dtype, engine
    ranks = int(table["n_gpu"][0])
    operator = Operator(
        name="all_reduce",
        kind="collective",
        dtype="bf16",
        format="bf16",
        launches=1.0,
        link_bytes=table["message_bytes"] * (2.0 * (ranks - 1) / ranks),
        peers=ranks,
    )
    return (operator,)
