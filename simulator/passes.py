"""What a pass is, and what an operator of it costs: the values that all cost formulas speak of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from roofcast.simulator.architecture import Architecture
from roofcast.simulator.engines import Engine, find_engine
from roofcast.simulator.memory_policy import Launch
from roofcast.simulator.workload import Array, Parallelism, Workload

Kind = Literal["gemm", "experts", "attention", "state", "elementwise", "collective"]
_ZERO = np.zeros(())


def _zero() -> Array:
    return _ZERO


@dataclass(frozen=True, slots=True)
class Operator:
    """What one rank does under one name in one pass. Bytes are HBM bytes; arrays broadcast.

    `rows` is the height of the operator's matrix products (tokens; in attention the queries that
    share one read of a cache entry), `dtype` what they compute in,
    `format` how the weights are stored. `launches` counts kernels. `link_bytes` is what a collective
    sends and receives per rank and direction, over `peers` ranks.

    What a device's parallelism can't hide: `depth` is the length one block of threads works through
    in sequence (the inner dimension of a product, the entries an attention sees), in each of
    `repeats` layers; `blocks` counts independent pieces of work (tiles of an expert's output,
    sequences times KV heads), of all layers. `matrices` counts the distinct matrices of a grouped
    product (experts touched), of all layers: an engine without grouped kernels runs them in turn.
    """

    name: str
    kind: Kind
    dtype: str
    format: str
    launches: float
    flops: Array = field(default_factory=_zero)
    weight_bytes: Array = field(default_factory=_zero)
    kv_read_bytes: Array = field(default_factory=_zero)
    kv_write_bytes: Array = field(default_factory=_zero)
    activation_bytes: Array = field(default_factory=_zero)
    rows: Array = field(default_factory=_zero)
    vector_flops: Array = field(default_factory=_zero)
    link_bytes: Array = field(default_factory=_zero)
    peers: int = 1
    depth: Array = field(default_factory=_zero)
    blocks: Array = field(default_factory=_zero)
    matrices: Array = field(default_factory=_zero)
    repeats: float = 1.0

    @property
    def bytes(self) -> Array:
        """All HBM bytes."""
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes + self.activation_bytes

    def __add__(self, other: Operator) -> Operator:
        """The same operator in other layers: everything adds except rows; the depth is averaged."""
        repeats = self.repeats + other.repeats
        return replace(
            self,
            repeats=repeats,
            depth=(self.depth * self.repeats + other.depth * other.repeats) / repeats,
            blocks=self.blocks + other.blocks,
            matrices=self.matrices + other.matrices,
            launches=self.launches + other.launches,
            flops=self.flops + other.flops,
            weight_bytes=self.weight_bytes + other.weight_bytes,
            kv_read_bytes=self.kv_read_bytes + other.kv_read_bytes,
            kv_write_bytes=self.kv_write_bytes + other.kv_write_bytes,
            activation_bytes=self.activation_bytes + other.activation_bytes,
            vector_flops=self.vector_flops + other.vector_flops,
            link_bytes=self.link_bytes + other.link_bytes,
        )

    def times(self, count: int) -> Operator:
        """The operator run in `count` equal layers."""
        return replace(
            self,
            repeats=self.repeats * count,
            blocks=self.blocks * count,
            matrices=self.matrices * count,
            launches=self.launches * count,
            flops=self.flops * count,
            weight_bytes=self.weight_bytes * count,
            kv_read_bytes=self.kv_read_bytes * count,
            kv_write_bytes=self.kv_write_bytes * count,
            activation_bytes=self.activation_bytes * count,
            vector_flops=self.vector_flops * count,
            link_bytes=self.link_bytes * count,
        )


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass to cost: the model, the work, and how both are laid out.

    `kv_dtype` and `activation_dtype` name element types (see formats). `skew` is the Zipf exponent of
    expert popularity, 0 for uniform routing. `sampled` False leaves out the sampler. `engine` names
    whose kernel counts apply (see engines.toml), `launch` how it was started.
    """

    architecture: Architecture
    workload: Workload
    parallelism: Parallelism = Parallelism()
    kv_dtype: str = "bf16"
    activation_dtype: str = "bf16"
    skew: float = 0.0
    sampled: bool = True
    engine: str = "ideal"
    launch: Launch = Launch()

    @property
    def kernels(self) -> Engine:
        """Kernel counts of the engine."""
        return find_engine(self.engine)

    @property
    def microbatches(self) -> Array:
        """Groups a batch is cut into so that every pipeline stage has work."""
        return np.minimum(self.parallelism.pipeline, self.workload.batch)

    @property
    def sequences(self) -> Array:
        """Sequences the busiest rank attends for in one pass."""
        groups = self.microbatches * self.parallelism.data
        return np.ceil(self.workload.batch / groups)

    @property
    def tokens(self) -> Array:
        """Tokens the busiest rank's dense layers process in one pass."""
        return self.sequences * self.workload.new

    @property
    def expert_tokens(self) -> Array:
        """Tokens that reach the experts of one pass, from all data-parallel groups."""
        return np.ceil(self.workload.batch / self.microbatches) * self.workload.new
