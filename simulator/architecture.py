"""What a decoder is made of, as far as a decode step can tell.

An `Architecture` is a list of `Layer`s between embeddings and a head. A layer holds `Weight`s (every
tensor of the checkpoint, with how a step uses it), `Core`s (what reads and writes a cache or a state)
and, where it has them, routed `Experts`. Family adapters build these values from a config.json;
operators, the memory ledger and the Torch decoder read them. Nothing here knows a family by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from roofcast.simulator.formats import BF16, WeightFormat

Part = Literal[
    "embeddings",
    "attention",
    "indexer",
    "linear_attention",
    "mlp",
    "router",
    "experts",
    "shared_experts",
    "norms",
    "lm_head",
    "other",
]
Use = Literal["matmul", "vector", "lookup", "unused"]


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor of the checkpoint.

    `path` is the module path inside its layer (``self_attn.q_proj``) or inside the model for tensors
    outside the layers (``lm_head``); quantisation configs name modules by it. `op` is the operator a
    step runs it in: matrices of one layer with the same `op` read the same input and form one GEMM.
    `pieces` is how many parts tensor parallelism can cut the tensor into (query heads, KV heads,
    columns of an MLP, vocabulary rows); 1 means every rank holds all of it. `use` is unused for
    what the reference implementation allocates though no step reads it: a parameter, never bytes.
    """

    path: str
    op: str
    part: Part
    rows: int
    columns: int = 1
    bias: bool = False
    use: Use = "matmul"
    pieces: int = 1
    resident: bool = True  # False: the bytes live elsewhere (tied head, shared block), yet are read
    format: WeightFormat = BF16

    @property
    def parameters(self) -> int:
        """Elements, bias included, whether or not they are stored here."""
        return self.rows * self.columns + (self.rows if self.bias else 0)

    @property
    def bytes(self) -> float:
        """Bytes of the tensor, scales and zero points included; the bias stays in bf16."""
        matrix = self.format.bytes(self.rows, self.columns)
        return matrix + (BF16.bytes(self.rows, 1) if self.bias else 0.0)


@dataclass(frozen=True, slots=True)
class Indexer:
    """The small attention that picks the tokens a sparse layer attends to (DSA, MiniMax-M3).

    It scores every visible cache entry: 2 x heads x dim FLOPs each, plus 2 x heads to weigh the heads
    where `weighs_heads`. Its key cache has `key_dim` elements a token.
    """

    heads: int
    dim: int
    key_dim: int
    weighs_heads: bool = True


@dataclass(frozen=True, slots=True)
class AttentionCore:
    """Attention of the new token over cached keys and values.

    The cache holds `kv_heads` x (`key_dim` + `value_dim`) elements a token, or only the keys where
    `value_is_key`. `window` counts visible tokens, the new one included; a `chunked` window restarts
    at its multiples (position mod window + 1 visible). `compression` > 1 keeps one entry for so many
    tokens; `selected` caps the entries attended to, chosen by `indexer` (of this layer or, where it is
    None, of an earlier one). `stores` False means the cache of an earlier layer is read.
    """

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    chunked: bool = False
    compression: int = 1
    selected: int | None = None
    indexer: Indexer | None = None
    value_is_key: bool = False
    stores: bool = True


@dataclass(frozen=True, slots=True)
class LatentCore:
    """Multi-head latent attention (MLA) as served: absorbed, over one latent shared by all heads.

    The cache holds `latent_dim` + `rope_dim` elements a token, replicated on every tensor-parallel
    rank. Decode scores 2 x heads x (latent + rope) and sums 2 x heads x latent FLOPs a cached token;
    prefill expands the latent and runs ordinary attention with `nope_dim` + `rope_dim` keys.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1 and appendix C.
    """

    heads: int
    latent_dim: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    selected: int | None = None
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True)
class StateCore:
    """A recurrent mixer whose state does not grow with context (Mamba, delta rules, short convolution).

    A step reads and writes `conv_elements` in the cache dtype and `state_elements` of
    `state_element_bytes` each, per sequence. `flops` counts its matrix products and convolutions,
    `vector_flops` the element-wise rest of the update, both per token. `pieces` is how many parts
    tensor parallelism can cut it into (heads).
    """

    kind: str
    conv_elements: int
    state_elements: int
    flops: int
    vector_flops: int = 0
    state_element_bytes: int = 4
    pieces: int = 1


Core = AttentionCore | LatentCore | StateCore


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of one layer: each token runs `top_k` of `count`; `weights` are one expert's.

    `zero` counts router slots behind which nothing is computed (LongCat's zero experts): a token
    then runs `active` = top_k x count / (count + zero) experts on average.
    """

    count: int
    top_k: int
    weights: tuple[Weight, ...]
    zero: int = 0

    @property
    def active(self) -> float:
        """Experts one token runs, on average where some picks compute nothing."""
        return self.top_k * self.count / (self.count + self.zero)

    @property
    def parameters(self) -> int:
        """Elements of all experts together."""
        return self.count * sum(weight.parameters for weight in self.weights)

    @property
    def bytes(self) -> float:
        """Bytes of all experts together."""
        return self.count * sum(weight.bytes for weight in self.weights)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. `kind` names its mixer and, after a plus sign, its MLP where it has one.

    `mixing_flops` are matrix products of activations with activations, per token, that no core
    holds: the mixing of residual streams in hyper-connections and AltUp.
    """

    kind: str
    weights: tuple[Weight, ...]
    cores: tuple[Core, ...] = ()
    experts: Experts | None = None
    mixing_flops: int = 0


@dataclass(frozen=True, slots=True)
class Numerics:
    """What only the arithmetic needs, not the costs: enough to run the decoder for real.

    `activation` is a transformers name (silu, gelu, gelu_pytorch_tanh, relu). `rope_theta` None means
    learned positions, `position_offset` rows into their table. `rope_scaling` is the config's own
    dictionary. `local_rope_theta` is what windowed layers use instead, unscaled, where they differ.
    `norm_offset` is added to the stored weights of RMSNorms (Gemma stores them less 1).
    """

    norm: Literal["rmsnorm", "layernorm"]
    norm_eps: float
    activation: str
    gated_mlp: bool
    rope_theta: float | None
    rope_scaling: tuple[tuple[str, object], ...] = ()
    rope_fraction: float = 1.0
    position_offset: int = 0
    normalise_top_k: bool = True
    qk_norm: bool = False
    attention_scale: float | None = None
    local_rope_theta: float | None = None
    embedding_scale: float = 1.0
    norm_offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only language model as a decode step sees it.

    `dtype` is what unquantised tensors, activations and the KV cache use unless told otherwise.
    `kv_dtype` is set where the checkpoint asks for a cache dtype of its own. `mtp` holds
    next-token-prediction layers: resident where an engine loads them, never read by a plain step.
    `hidden_copies` > 1 where the residual stream is several wide (hyper-connections).
    """

    name: str
    family: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    embeddings: tuple[Weight, ...]
    head: tuple[Weight, ...]
    dtype: str = "bf16"
    kv_dtype: str | None = None
    max_context: int | None = None
    mtp: tuple[Weight, ...] = ()
    mtp_experts: tuple[Experts, ...] = ()
    hidden_copies: int = 1
    numerics: Numerics | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)

    _counted: tuple[tuple[Layer, int], ...] = field(
        default=(), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Let equal layers be one object and count them once, for all who ask."""
        equal: dict[Layer, Layer] = {}
        same: dict[int, Layer] = {}
        for layer in self.layers:
            if id(layer) not in same:
                same[id(layer)] = equal.setdefault(layer, layer)
        layers = tuple(same[id(layer)] for layer in self.layers)
        counts = Counter(map(id, layers))
        counted = tuple((layer, counts[id(layer)]) for layer in equal)
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "_counted", counted)

    def counted_layers(self) -> Iterator[tuple[Layer, int]]:
        """Every different layer, with how many there are, in order of first appearance."""
        return iter(self._counted)

    def weights(self) -> Iterator[Weight]:
        """Every tensor outside the routed experts, embeddings first, head last, MTP left out."""
        yield from self.embeddings
        for layer in self.layers:
            yield from layer.weights
        yield from self.head

    @property
    def parameters(self) -> int:
        """Unique elements: tied and shared tensors once, MTP layers apart."""
        own = sum(weight.parameters for weight in self.weights() if weight.resident)
        return own + sum(layer.experts.parameters for layer in self.layers if layer.experts)

    @property
    def active_parameters(self) -> float:
        """Elements one token uses, embedding tables included: experts count top_k of count."""
        idle = sum(
            experts.parameters // experts.count * (experts.count - experts.active)
            for experts in (layer.experts for layer in self.layers)
            if experts
        )
        unused = sum(weight.parameters for weight in self.weights() if weight.use == "unused")
        return self.parameters - idle - unused

    @property
    def weight_bytes(self) -> float:
        """Resident bytes of the weights, scales included, MTP layers left out."""
        held = (w for w in self.weights() if w.resident and w.use != "unused")
        own = sum(weight.bytes for weight in held)
        return own + sum(layer.experts.bytes for layer in self.layers if layer.experts)
