"""The parts decoders are made of: each builder turns a small spec into `Weight`s and a `Core`.

Paths are module names as in checkpoints. Matrices with the same `op` share their input and form one
GEMM. `pieces` says how far tensor parallelism can cut a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from roofcast.simulator.architecture import (
    AttentionCore,
    Experts,
    Indexer,
    LatentCore,
    Part,
    Weight,
)
from roofcast.simulator.config import Config

NormKind = Literal["rms", "layer", "layer_no_bias", "none"]
Tables = Callable[[Config], tuple[Weight, ...]]
QkNorm = Literal["none", "head", "head_bias", "projection", "projection_bias"]


def vector(path: str, rows: int, part: Part = "norms", *, op: str = "norm") -> Weight:
    """A replicated vector: norm weights, sinks, scalars of a layer."""
    return Weight(path, op, part, rows, use="vector")


def norm(path: str, width: int, kind: NormKind = "rms") -> tuple[Weight, ...]:
    """One normalisation: a weight, a bias in plain LayerNorm, nothing where it has no parameters."""
    if kind == "none":
        return ()
    return (Weight(path, "norm", "norms", width, bias=kind == "layer", use="vector"),)


def norms(paths: Iterable[str], width: int, kind: NormKind = "rms") -> tuple[Weight, ...]:
    """Several normalisations of the same width."""
    return tuple(weight for path in paths for weight in norm(path, width, kind))


@dataclass(frozen=True, slots=True)
class Names:
    """Checkpoint names of an attention's four projections; fused ones repeat a name."""

    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    o: str = "self_attn.o_proj"
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention of one layer.

    `query_copies` 2 where the query projection also makes an output gate of the same size.
    `qk_norm` is one vector for all heads (``head``) or one for the whole projection. `own_kv` False
    where keys and values come from an earlier layer; `value_is_key` where there is no value
    projection. `gate` names a projection that scales the output, element by element or head by head.
    """

    hidden: int
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm = "none"
    query_copies: int = 1
    own_kv: bool = True
    value_is_key: bool = False
    sinks: str = ""
    gate: str = ""
    gate_per_head: bool = False
    names: Names = Names()

    def weights(self) -> tuple[Weight, ...]:
        """Projections, their norms and the sinks."""
        heads, kv = self.query_heads, self.kv_heads
        columns, bias = self.hidden, self.qkv_bias

        def qkv(path: str, rows: int, pieces: int) -> Weight:
            return Weight(path, "qkv_proj", "attention", rows, columns, bias, pieces=pieces)

        made = [qkv(self.names.q, heads * self.key_dim * self.query_copies, heads)]
        if self.gate:
            rows = heads if self.gate_per_head else heads * self.value_dim
            made.append(replace(qkv(self.gate, rows, heads), bias=False))
        if self.own_kv:
            made.append(qkv(self.names.k, kv * self.key_dim, kv))
            if not self.value_is_key:
                made.append(qkv(self.names.v, kv * self.value_dim, kv))
        made.append(
            Weight(
                self.names.o,
                "o_proj",
                "attention",
                self.hidden,
                heads * self.value_dim,
                self.output_bias,
                pieces=heads,
            )
        )
        made += self._norms()
        if self.sinks:
            made.append(vector(self.sinks, heads, "attention", op="attention_sinks"))
        return tuple(made)

    def _norms(self) -> tuple[Weight, ...]:
        if self.qk_norm == "none":
            return ()
        shared = self.qk_norm.startswith("head")
        q, k = (1, 1) if shared else (self.query_heads, self.kv_heads)
        kind: NormKind = "layer" if self.qk_norm.endswith("bias") else "rms"
        made = norm(self.names.q_norm, q * self.key_dim, kind)
        return made + (norm(self.names.k_norm, k * self.key_dim, kind) if self.own_kv else ())

    def core(
        self,
        *,
        window: int | None = None,
        chunked: bool = False,
        selected: int | None = None,
        indexer: Indexer | None = None,
    ) -> AttentionCore:
        """The attention itself, over a window where one is given."""
        return AttentionCore(
            self.query_heads,
            self.kv_heads,
            self.key_dim,
            self.value_dim,
            window=window,
            chunked=chunked,
            selected=selected,
            indexer=indexer,
            stores=self.own_kv,
        )


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention of one layer. `query_rank` None: queries are not compressed."""

    hidden: int
    heads: int
    query_rank: int | None
    latent: int
    rope: int
    nope: int
    value: int
    bias: bool = False
    prefix: str = "self_attn"

    def weights(self) -> tuple[Weight, ...]:
        """Compressing and expanding projections with their norms.

        The a-projections are replicated under tensor parallelism; the rest is cut by heads.
        """
        prefix, heads, columns = self.prefix, self.heads, self.query_rank or self.hidden
        query = heads * (self.nope + self.rope)
        made: list[Weight] = []

        def down(path: str, rows: int) -> Weight:
            return Weight(
                f"{prefix}.{path}", "q_a_kv_a_proj", "attention", rows, self.hidden, self.bias
            )

        if self.query_rank:
            made += [down("q_a_proj", self.query_rank)]
            made += norm(f"{prefix}.q_a_layernorm", self.query_rank)
        made.append(
            Weight(
                f"{prefix}.q_b_proj" if self.query_rank else f"{prefix}.q_proj",
                "q_b_proj",
                "attention",
                query,
                columns,
                pieces=heads,
            )
        )
        made += [down("kv_a_proj_with_mqa", self.latent + self.rope)]
        made += norm(f"{prefix}.kv_a_layernorm", self.latent)
        made.append(
            Weight(
                f"{prefix}.kv_b_proj",
                "kv_b_absorb",
                "attention",
                heads * (self.nope + self.value),
                self.latent,
                pieces=heads,
            )
        )
        made.append(
            Weight(
                f"{prefix}.o_proj",
                "o_proj",
                "attention",
                self.hidden,
                heads * self.value,
                self.bias,
                pieces=heads,
            )
        )
        return tuple(made)

    def core(self, *, selected: int | None = None, indexer: Indexer | None = None) -> LatentCore:
        """Absorbed attention over the latent."""
        return LatentCore(
            self.heads, self.latent, self.rope, self.nope, self.value, selected, indexer
        )


@dataclass(frozen=True, slots=True)
class Mlp:
    """A feed-forward block of two matrices, or three where it is gated."""

    hidden: int
    width: int
    gated: bool = True
    bias: bool = False
    prefix: str = "mlp"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    part: Part = "mlp"
    ops: tuple[str, str] = ("gate_up_proj", "down_proj")

    def weights(self) -> tuple[Weight, ...]:
        """Gate and up share one GEMM; down follows."""
        at = f"{self.prefix}." if self.prefix else ""
        gate, up, down = (at + name for name in self.names)
        widen = [gate, up] if self.gated else [up]
        return (
            *(
                Weight(
                    path,
                    self.ops[0],
                    self.part,
                    self.width,
                    self.hidden,
                    self.bias,
                    pieces=self.width,
                )
                for path in widen
            ),
            Weight(
                down, self.ops[1], self.part, self.hidden, self.width, self.bias, pieces=self.width
            ),
        )


@dataclass(frozen=True, slots=True)
class Moe:
    """A mixture-of-experts block: router, routed experts and, where it has one, a shared expert.

    `shared_width` is the width of all shared experts together, as they are built. `shared_gate` is
    Qwen's 1 x hidden gate on the shared output. `expert_hidden` is the experts' input width where it
    is not the hidden size.
    """

    hidden: int
    count: int
    top_k: int
    width: int
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_width: int = 0
    shared_bias: bool = False
    shared_gate: bool = False
    expert_hidden: int | None = None
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    shared: str = "mlp.shared_experts"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")

    def weights(self) -> tuple[Weight, ...]:
        """Router and shared expert: what every token reads."""
        made = [
            Weight(self.router, "router", "router", self.count, self.hidden, self.router_bias),
        ]
        if self.shared_width:
            block = Mlp(
                self.hidden,
                self.shared_width,
                gated=self.gated,
                bias=self.shared_bias,
                prefix=self.shared,
                names=self.names,
                part="shared_experts",
                ops=("shared_gate_up", "shared_down"),
            )
            made += block.weights()
        if self.shared_gate:
            made.append(
                Weight(f"{self.shared}_gate", "shared_gate", "shared_experts", 1, self.hidden)
            )
        return tuple(made)

    def routed(self) -> Experts:
        """The routed experts."""
        block = Mlp(
            self.expert_hidden or self.hidden,
            self.width,
            gated=self.gated,
            bias=self.bias,
            prefix=self.experts,
            names=self.names,
            part="experts",
            ops=("experts_gate_up", "experts_down"),
        )
        return Experts(self.count, self.top_k, block.weights())


def embedding(vocab: int, width: int, path: str = "model.embed_tokens") -> Weight:
    """A token or position table: resident whole, read one row a token."""
    return Weight(path, "embedding", "embeddings", vocab, width, use="lookup", pieces=vocab)


def head(
    vocab: int, width: int, *, tied: bool, bias: bool = False, path: str = "lm_head"
) -> tuple[Weight, ...]:
    """The output matrix, read whole every step; a tied one has no bytes of its own."""
    matrix = Weight(
        path, "lm_head", "lm_head", vocab, width, bias and not tied, pieces=vocab, resident=not tied
    )
    if not (bias and tied):
        return (matrix,)
    return (matrix, vector(f"{path}.bias", vocab, "lm_head", op="lm_head"))
