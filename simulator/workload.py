"""What is asked of a model: how many sequences, how long, stored how, spread over which ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofcast.hardware.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one replica is spread over devices.

    `tensor` ranks split every layer; `pipeline` stages split the stack; `data` groups split the
    batch for attention while they share the experts; `expert` of the tensor x data ranks hold whole
    experts, each group of tensor x data / expert ranks splitting an expert.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "expert", "data"):
            value = getattr(self, name)
            if value < 1:
                raise InputError(f"{name} parallelism must be at least 1, not {value}")
        if (self.tensor * self.data) % self.expert:
            raise InputError(
                f"expert parallelism {self.expert} must divide tensor x data ranks "
                f"({self.tensor} x {self.data} = {self.tensor * self.data})"
            )

    @property
    def devices(self) -> int:
        """Devices one replica uses."""
        return self.tensor * self.pipeline * self.data

    @property
    def expert_tensor(self) -> int:
        """Ranks that split one expert between them."""
        return self.tensor * self.data // self.expert


@dataclass(frozen=True, slots=True)
class Workload:
    """Sequences processed together: `new` tokens each after `context` cached ones.

    `batch` counts the sequences of one replica. Decode has new = 1; prefill has context 0 (or the
    cached prefix) and new = the prompt; verifying a draft of k tokens has new = k + 1. All three
    broadcast.
    """

    batch: Array
    context: Array
    new: Array

    @classmethod
    def decode(cls, batch: ArrayLike, context: ArrayLike, new: ArrayLike = 1) -> Workload:
        """One decode step; raises InputError for a batch below 1 or a negative context."""
        sizes = (_whole(batch, "batch", 1), _whole(context, "context", 0), _whole(new, "new", 1))
        return cls(*sizes)

    @classmethod
    def prefill(cls, batch: ArrayLike, prompt: ArrayLike, cached: ArrayLike = 0) -> Workload:
        """The whole prompt in one pass, `cached` tokens of it found in a prefix cache."""
        total, prefix = _whole(prompt, "prompt", 1), _whole(cached, "cached prefix", 0)
        if np.any(prefix >= total):
            raise InputError("a cached prefix must be shorter than the prompt")
        return cls(_whole(batch, "batch", 1), prefix, total - prefix)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points, all three broadcast."""
        return np.broadcast_shapes(self.batch.shape, self.context.shape, self.new.shape)


def _whole(values: ArrayLike, name: str, least: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    bad = ~np.isfinite(array) | (array < least) | (array != np.floor(array))
    if np.any(bad):
        given = array[bad].flat[0] if array.ndim else float(array)
        raise InputError(f"{name} must be a whole number of at least {least}, not {given:g}")
    return array
