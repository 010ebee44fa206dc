"""From an `Architecture` and a source of weights to the modules of a decoder, for one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor, nn

from roofcast.calibrate.blocks import Attention, Branch, HeadNorm, Heads, Layer, Norm
from roofcast.calibrate.linear import Linear
from roofcast.calibrate.mlp import (
    Activation,
    GroupedExperts,
    LoopedExperts,
    Mlp,
    Moe,
    can_group,
)
from roofcast.calibrate.runnable import block_norms
from roofcast.calibrate.shards import CUT_BY_COLUMNS, Shard
from roofcast.calibrate.weight_sources import Source, Wanted
from roofcast.simulator.architecture import (
    AttentionCore,
    Experts,
    Numerics,
    Weight,
)
from roofcast.simulator.architecture import Layer as LayerSpec


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the weights go and how: device, dtype, rank, whether the CPU's are packed."""

    device: torch.device
    dtype: torch.dtype
    packed: bool = False
    shard: Shard = Shard()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads and joins the tensors of one module prefix (`at`, empty outside the layers)."""

    source: Source
    place: Placement
    at: str
    depth: int  # layers of the model, which the scale of random weights depends on

    def linear(self, weights: Sequence[Weight]) -> Linear:
        """One matrix from all that share an input, this rank's part of each."""
        matrix = self._joined(self._parts(weights))
        bias = None
        if any(weight.bias for weight in weights):
            bias = torch.cat([self._bias(*part) for part in self._offsets(weights)])
        return Linear(matrix, bias, packed=self.place.packed)

    def matrices(self, weights: Sequence[Weight], count: int) -> Tensor:
        """The same for `count` experts at once: [count, rows, columns]."""
        return self._joined(self._parts(weights, count))

    def matrix(self, weight: Weight, *, whole: bool = False) -> Tensor:
        """One table, `whole` on every rank or this rank's rows."""
        reader = replace(self, place=replace(self.place, shard=Shard())) if whole else self
        return self._joined(reader._parts([weight]))

    def vector(self, weight: Weight, offset: float = 0.0) -> Tensor:
        """A norm's weight, which is stored less `offset`; random ones come out as 1."""
        wanted = Wanted(self._key(weight, "weight"), (weight.rows,), constant=1.0 - offset)
        return self._read(wanted) + offset

    def bias(self, weight: Weight) -> Tensor:
        """A norm's bias; random ones are 0."""
        return self._read(Wanted(self._key(weight, "bias"), (weight.rows,)))

    def _parts(self, weights: Sequence[Weight], count: int = 0) -> list[Wanted]:
        leading = (count,) if count else ()
        return [
            Wanted(
                self._key(weight, "weight"),
                (*leading, total, weight.columns),
                _shifted(self.place.shard.rows(weight), offset),
                self.place.shard.columns(weight),
                self._std(weight),
            )
            for weight, offset, total in self._offsets(weights)
        ]

    def _offsets(self, weights: Sequence[Weight]) -> list[tuple[Weight, int, int]]:
        """Each weight with its first row in its tensor and that tensor's rows.

        Weights that share a path are one tensor in the checkpoint, stacked in this order.
        """
        made = []
        for _, same in groupby(weights, key=lambda weight: weight.path):
            group, offset = list(same), 0
            total = sum(weight.rows for weight in group)
            for weight in group:
                made.append((weight, offset, total))
                offset += weight.rows
        return made

    def _bias(self, weight: Weight, offset: int, total: int) -> Tensor:
        """A bias; where outputs are summed over ranks only the first rank adds it."""
        shard = self.place.shard
        rows = _shifted(shard.rows(weight), offset)
        made = self._read(Wanted(self._key(weight, "bias"), (total,), rows))
        return made.zero_() if weight.op in CUT_BY_COLUMNS and shard.rank else made

    def _joined(self, parts: list[Wanted]) -> Tensor:
        if len(parts) == 1:
            return self._read(parts[0])
        tensors = [self._read(part) for part in parts]
        return torch.cat(tensors, dim=-2)

    def _read(self, wanted: Wanted) -> Tensor:
        return self.source.read(wanted, self.place.device, self.place.dtype)

    def _key(self, weight: Weight, kind: str) -> str:
        return f"{self.at}.{weight.path}.{kind}" if self.at else f"{weight.path}.{kind}"

    def _std(self, weight: Weight) -> float:
        """Outputs of unit variance, shrunk where they add up in the residual stream.

        Source: Radford et al. 2019 (GPT-2), section 2.3: 1 / sqrt(number of residual layers).
        """
        residual = (2 * self.depth) ** -0.5 if weight.op in CUT_BY_COLUMNS else 1.0
        return float(weight.columns**-0.5 * residual)


def _shifted(part: slice, offset: int) -> slice:
    return slice(part.start + offset, part.stop + offset)


def by_op(weights: Sequence[Weight], op: str) -> list[Weight]:
    """The weights of one operator, in order."""
    return [weight for weight in weights if weight.op == op]


def norm(reader: Reader, weight: Weight, numerics: Numerics) -> Norm:
    """A norm around a block or before the head."""
    return Norm(
        reader.vector(weight, numerics.norm_offset),
        reader.bias(weight) if weight.bias else None,
        numerics.norm_eps,
        weight.rows,
        centred=numerics.norm == "layernorm",
    )


def head(reader: Reader, weights: Sequence[Weight], table: Tensor) -> Linear:
    """The output matrix: its own, or the token table where they are tied."""
    (matrix,) = by_op(weights, "lm_head")
    if matrix.resident:
        return reader.linear([matrix])
    return Linear(table, packed=reader.place.packed)


def layer(reader: Reader, index: int, spec: LayerSpec, numerics: Numerics) -> Layer:
    """One layer: two norms before its branches, or two before and two after, alternating."""
    around = {weight.path: weight for weight in spec.weights if weight.op == "norm"}
    norms = [norm(reader, around[path], numerics) for path in block_norms(spec)]
    before, after = (norms, (None, None)) if len(norms) == 2 else (norms[::2], norms[1::2])
    mlp = _moe if spec.experts else _mlp
    shard = reader.place.shard
    return Layer(
        Branch(before[0], _attention(reader, index, spec, numerics), after[0], shard),
        Branch(before[1], mlp(reader, spec, numerics), after[1], shard),
    )


def rotation_of(core: AttentionCore, numerics: Numerics) -> int | None:
    """Which of the model's rotary embeddings a layer uses: 1 is that of windowed layers."""
    if numerics.rope_theta is None:
        return None
    return int(core.window is not None and numerics.local_rope_theta is not None)


def _attention(reader: Reader, index: int, spec: LayerSpec, numerics: Numerics) -> Attention:
    core = spec.cores[0]
    assert isinstance(core, AttentionCore)
    shard = reader.place.shard
    scale = numerics.attention_scale or core.key_dim**-0.5
    heads = Heads(
        shard.share(core.query_heads),
        shard.share(core.kv_heads),
        core.key_dim,
        scale,
        core.window,
        rotation_of(core, numerics),
    )
    inner = [w for w in spec.weights if w.op == "norm" and "." in w.path]
    head_norm = None
    if inner:
        q, k = (reader.vector(weight, numerics.norm_offset) for weight in inner)
        rows = torch.cat((q.expand(heads.query, -1), k.expand(heads.kv, -1)))
        head_norm = HeadNorm(rows, numerics.norm_eps)
    qkv = reader.linear(by_op(spec.weights, "qkv_proj"))
    output = reader.linear(by_op(spec.weights, "o_proj"))
    return Attention(index, heads, qkv, output, head_norm)


def _mlp(reader: Reader, spec: LayerSpec, numerics: Numerics, prefix: str = "") -> Mlp:
    up, down = ("shared_gate_up", "shared_down") if prefix else ("gate_up_proj", "down_proj")
    return Mlp(
        reader.linear(by_op(spec.weights, up)),
        reader.linear(by_op(spec.weights, down)),
        Activation(numerics.activation, gated=numerics.gated_mlp),
    )


def _moe(reader: Reader, spec: LayerSpec, numerics: Numerics) -> Moe:
    assert spec.experts is not None
    shared = by_op(spec.weights, "shared_gate_up")
    gate = by_op(spec.weights, "shared_gate")
    return Moe(
        reader.linear(by_op(spec.weights, "router")),
        _experts(reader, spec.experts, numerics),
        spec.experts.top_k,
        normalise=numerics.normalise_top_k,
        shared=_mlp(reader, spec, numerics, "shared") if shared else None,
        shared_gate=reader.linear(gate) if gate else None,
    )


def _experts(reader: Reader, experts: Experts, numerics: Numerics) -> nn.Module:
    place = reader.place
    ups = reader.matrices(by_op(experts.weights, "experts_gate_up"), experts.count)
    downs = reader.matrices(by_op(experts.weights, "experts_down"), experts.count)
    activation = Activation(numerics.activation, gated=numerics.gated_mlp)
    if can_group(place.device, place.dtype):
        return GroupedExperts(ups, downs, activation)
    return LoopedExperts(
        [Linear(up, packed=place.packed) for up in ups],
        [Linear(down, packed=place.packed) for down in downs],
        activation,
    )
