"""Recurrent mixers: each builder turns sizes into `Weight`s and the `StateCore` they drive.

Matrix FLOPs count products and convolutions once a token, as a serving kernel runs them; the
element-wise rest of the update is `vector_flops`. Recurrent states are float32 and convolution
states hold `kernel` columns in the cache dtype unless said otherwise.
Shapes: transformers 5.24.0 modeling files, each checked by building the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofcast.simulator.architecture import StateCore, Weight
from roofcast.simulator.families.parts import norm, vector


def projection(
    path: str, op: str, rows: int, columns: int, bias: bool = False, pieces: int = 1
) -> Weight:
    """One matrix of a recurrent mixer."""
    return Weight(path, op, "linear_attention", rows, columns, bias, pieces=pieces)


def convolution(path: str, channels: int, kernel: int, bias: bool = False) -> Weight:
    """A depthwise causal convolution; its FLOPs belong to the core."""
    return Weight(path, "conv1d", "linear_attention", channels, kernel, bias, use="vector")


def vectors(prefix: str, names: Iterable[str], rows: int) -> tuple[Weight, ...]:
    """Several per-head or per-channel parameters of the same length."""
    made = (vector(f"{prefix}.{name}", rows, "linear_attention", op="state") for name in names)
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Mamba:
    """Selective state space (Mamba 1, arXiv 2312.00752): one state of `state` per channel.

    `heads` > 1 splits the two inner projections by heads (Zamba). `inner_norms` are Jamba's three.
    """

    hidden: int
    width: int
    state: int
    kernel: int
    rank: int
    bias: bool = False
    conv_bias: bool = True
    heads: int = 1
    inner_norms: bool = False
    prefix: str = "mixer"
    state_bytes: int = 4

    def weights(self) -> tuple[Weight, ...]:
        """In-projection, convolution, step-size and B/C projections, A, D and out-projection."""
        at, cut = self.prefix, self.width
        selected = self.rank + 2 * self.state
        made = [
            projection(f"{at}.in_proj", "in_proj", 2 * cut, self.hidden, self.bias, cut),
            convolution(f"{at}.conv1d", cut, self.kernel, self.conv_bias),
            projection(f"{at}.x_proj", "x_proj", self.heads * selected, cut // self.heads),
            projection(f"{at}.dt_proj", "dt_proj", cut, self.rank, True, cut),
            Weight(f"{at}.A_log", "state", "linear_attention", cut, self.state, use="vector"),
            *vectors(at, ("D",), cut),
            projection(f"{at}.out_proj", "out_proj", self.hidden, cut, self.bias, cut),
        ]
        if self.inner_norms:
            made += norm(f"{at}.dt_layernorm", self.rank)
            made += norm(f"{at}.b_layernorm", self.state) + norm(f"{at}.c_layernorm", self.state)
        return tuple(made)

    def core(self) -> StateCore:
        """Update and read-out: 5 x width x state FLOPs, two of them as a matrix product."""
        cells = self.width * self.state
        return StateCore(
            kind="mamba",
            conv_elements=self.width * self.kernel,
            state_elements=cells,
            flops=2 * self.width * self.kernel + 2 * cells,
            vector_flops=3 * cells,
            state_element_bytes=self.state_bytes,
            pieces=self.width,
        )


@dataclass(frozen=True, slots=True)
class Mamba2:
    """State-space duality (Mamba 2, arXiv 2405.21060): `heads` states of `head_dim` x `state`.

    B and C come in `groups`. `normed` False where the gated norm before the out-projection is off.
    """

    hidden: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    bias: bool = False
    output_bias: bool = False
    conv_bias: bool = True
    normed: bool = True
    prefix: str = "mixer"
    state_bytes: int = 4

    @property
    def width(self) -> int:
        """Channels of the mixer."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: values, B and C."""
        return self.width + 2 * self.groups * self.state

    def weights(self) -> tuple[Weight, ...]:
        """In-projection (gate, values, B, C, step sizes), convolution, A, D, norm, out-projection."""
        at = self.prefix
        rows = self.width + self.channels + self.heads
        gated_norm = norm(f"{at}.norm", self.width) if self.normed else ()
        return (
            projection(f"{at}.in_proj", "in_proj", rows, self.hidden, self.bias, self.heads),
            convolution(f"{at}.conv1d", self.channels, self.kernel, self.conv_bias),
            *vectors(at, ("dt_bias", "A_log", "D"), self.heads),
            *gated_norm,
            projection(
                f"{at}.out_proj", "out_proj", self.hidden, self.width, self.output_bias, self.heads
            ),
        )

    def core(self) -> StateCore:
        """Update and read-out: 5 x heads x head_dim x state FLOPs, two as a matrix product."""
        cells = self.width * self.state
        return StateCore(
            kind="mamba2",
            conv_elements=self.channels * self.kernel,
            state_elements=cells,
            flops=2 * self.channels * self.kernel + 2 * cells,
            vector_flops=3 * cells,
            state_element_bytes=self.state_bytes,
            pieces=self.heads,
        )


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Gated DeltaNet (arXiv 2412.06464): one key_dim x value_dim state for each value head.

    `projections` names the input matrices with their rows, in checkpoint order; `output` and
    `norm` name the out-projection and the gated norm of one head.
    """

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    projections: tuple[tuple[str, int], ...]
    prefix: str = "linear_attn"
    output: str = "out_proj"
    norm: str = "norm"
    state_bytes: int = 4

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def weights(self) -> tuple[Weight, ...]:
        """Input projections (one GEMM), convolution, decay, gated norm, out-projection."""
        at, heads = self.prefix, self.key_heads
        values = self.value_heads * self.value_dim
        return (
            *(
                projection(f"{at}.{name}", "in_proj", rows, self.hidden, pieces=heads)
                for name, rows in self.projections
            ),
            convolution(f"{at}.conv1d", self.channels, self.kernel),
            *vectors(at, ("dt_bias", "A_log"), self.value_heads),
            *norm(f"{at}.{self.norm}", self.value_dim),
            projection(f"{at}.{self.output}", "out_proj", self.hidden, values, pieces=heads),
        )

    def core(self) -> StateCore:
        """Delta-rule update: decay, read, correct, write, read out: 7 FLOPs a state element."""
        cells = self.value_heads * self.key_dim * self.value_dim
        return StateCore(
            kind="gated_delta_net",
            conv_elements=self.channels * self.kernel,
            state_elements=cells,
            flops=2 * self.channels * self.kernel,
            vector_flops=7 * cells,
            state_element_bytes=self.state_bytes,
            pieces=self.key_heads,
        )


@dataclass(frozen=True, slots=True)
class KimiDelta:
    """Kimi delta attention (arXiv 2510.26692): a delta rule whose decay differs by channel.

    The forget and output gates come from the hidden state through one head's width, or directly
    where `full_rank_gates`.
    """

    hidden: int
    heads: int
    head_dim: int
    kernel: int
    full_rank_gates: bool = False
    prefix: str = "self_attn"

    def weights(self) -> tuple[Weight, ...]:
        """Queries, keys, values, write strength, gates, convolution, norm, output."""
        at, hidden, heads = self.prefix, self.hidden, self.heads
        width = heads * self.head_dim
        inputs = [(f"{name}_proj", width, heads) for name in "qkv"] + [("b_proj", heads, heads)]
        if self.full_rank_gates:
            inputs += [("f_proj", width, heads), ("g_proj", width, heads)]
        else:
            inputs += [("f_a_proj", self.head_dim, 1), ("g_a_proj", self.head_dim, 1)]
        widened = () if self.full_rank_gates else ("f_b_proj", "g_b_proj")
        return (
            *(
                projection(f"{at}.{name}", "in_proj", rows, hidden, pieces=pieces)
                for name, rows, pieces in inputs
            ),
            convolution(f"{at}.conv1d", 3 * width, self.kernel),
            *(
                projection(f"{at}.{name}", "gate_b_proj", width, self.head_dim, pieces=heads)
                for name in widened
            ),
            *vectors(at, ("dt_bias",), width),
            *vectors(at, ("A_log",), heads),
            *norm(f"{at}.o_norm", self.head_dim),
            projection(f"{at}.o_proj", "out_proj", hidden, width, pieces=heads),
        )

    def core(self) -> StateCore:
        """Delta-rule update: 7 FLOPs a state element, none of them as a matrix product."""
        width = self.heads * self.head_dim
        return StateCore(
            kind="kimi_delta_attention",
            conv_elements=3 * width * self.kernel,
            state_elements=width * self.head_dim,
            flops=2 * 3 * width * self.kernel,
            vector_flops=7 * width * self.head_dim,
            pieces=self.heads,
        )


@dataclass(frozen=True, slots=True)
class Lightning:
    """Lightning attention (MiniMax-01, arXiv 2501.08313): a decayed sum of key-value products."""

    hidden: int
    heads: int
    head_dim: int
    prefix: str = "self_attn"

    def weights(self) -> tuple[Weight, ...]:
        """Fused queries, keys and values, output gate, norm over all heads, output."""
        at, width = self.prefix, self.heads * self.head_dim
        return (
            projection(f"{at}.qkv_proj", "in_proj", 3 * width, self.hidden, pieces=self.heads),
            projection(f"{at}.output_gate", "in_proj", width, self.hidden, pieces=self.heads),
            *norm(f"{at}.norm", width),
            projection(f"{at}.out_proj", "out_proj", self.hidden, width, pieces=self.heads),
        )

    def core(self) -> StateCore:
        """Outer product in, query out: 4 FLOPs a state element; the state is kept in bf16."""
        cells = self.heads * self.head_dim**2
        return StateCore(
            kind="lightning_attention",
            conv_elements=0,
            state_elements=cells,
            flops=4 * cells,
            vector_flops=2 * cells,
            state_element_bytes=2,
            pieces=self.heads,
        )


@dataclass(frozen=True, slots=True)
class ShortConv:
    """A gated short convolution (LFM2, arXiv 2511.23404): its last inputs are the only state."""

    hidden: int
    kernel: int
    bias: bool = False
    prefix: str = "conv"

    def weights(self) -> tuple[Weight, ...]:
        """In-projection to two gates and the input, convolution, out-projection."""
        at, hidden = self.prefix, self.hidden
        return (
            projection(f"{at}.in_proj", "in_proj", 3 * hidden, hidden, self.bias, hidden),
            convolution(f"{at}.conv", hidden, self.kernel, self.bias),
            projection(f"{at}.out_proj", "out_proj", hidden, hidden, self.bias, hidden),
        )

    def core(self) -> StateCore:
        """The convolution and its two gates."""
        return StateCore(
            kind="short_convolution",
            conv_elements=self.hidden * self.kernel,
            state_elements=0,
            flops=2 * self.hidden * self.kernel,
            vector_flops=2 * self.hidden,
            pieces=self.hidden,
        )


@dataclass(frozen=True, slots=True)
class RgLru:
    """Real-gated linear recurrence (Griffin, arXiv 2402.19427): one float32 state per channel.

    The convolution state holds `kernel` - 1 columns. Both gates are block-diagonal, one block a head.
    """

    hidden: int
    width: int
    heads: int
    kernel: int
    prefix: str = "temporal_block"

    def weights(self) -> tuple[Weight, ...]:
        """Two input branches, convolution, block-diagonal gates, decay, output; all biased."""
        at, width, block = self.prefix, self.width, self.width // self.heads
        return (
            projection(f"{at}.linear_y", "in_proj", width, self.hidden, True, width),
            projection(f"{at}.linear_x", "in_proj", width, self.hidden, True, width),
            convolution(f"{at}.conv_1d", width, self.kernel, True),
            *vectors(at, ("rg_lru.recurrent_param",), width),
            projection(f"{at}.rg_lru.input_gate", "lru_gates", width, block, True, self.heads),
            projection(f"{at}.rg_lru.recurrent_gate", "lru_gates", width, block, True, self.heads),
            projection(f"{at}.linear_out", "out_proj", self.hidden, width, True, width),
        )

    def core(self) -> StateCore:
        """Decay the state and add the gated input, a handful of FLOPs a channel."""
        return StateCore(
            kind="rg_lru",
            conv_elements=self.width * (self.kernel - 1),
            state_elements=self.width,
            flops=2 * self.width * self.kernel,
            vector_flops=6 * self.width,
            pieces=self.heads,
        )
