"""A reply as a trajectory: one prefill, then one step per further token as the cache grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from roofcast.hardware.errors import InputError
from roofcast.simulator.api import Setup
from roofcast.simulator.prediction import CAUSES, Forecast
from roofcast.simulator.workload import Array

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Trajectory:
    """A batch of equal replies: the prefill gives the first token, each step one more.

    `steps` has one point per decode step; its context runs from the prompt to prompt + output - 2.
    """

    prefill: Forecast
    steps: Forecast

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token, nothing queued before it."""
        return float(self.prefill.step_time_s)

    @property
    def itl_s(self) -> Array:
        """Seconds between tokens, one per step."""
        return self.steps.step_time_s

    @property
    def tpot_s(self) -> float:
        """Mean seconds per output token, the first one excluded."""
        return float(np.mean(self.itl_s)) if self.itl_s.size else 0.0

    @property
    def total_s(self) -> float:
        """Seconds for the whole reply."""
        return self.ttft_s + float(np.sum(self.itl_s))

    @property
    def output_tokens(self) -> int:
        """Tokens of one reply."""
        return 1 + self.itl_s.size

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of the batch over the whole reply, prefill included."""
        return float(self.steps.batch.flat[0]) * self.output_tokens / self.total_s

    def __str__(self) -> str:
        """When the first token comes and the last, then the steps as a table."""
        return f"{self._summary()}\n{self.steps}"

    def _repr_html_(self) -> str:
        """The same as a notebook shows it."""
        return f"<p>{self._summary()}</p>{self.steps._repr_html_()}"

    def _summary(self) -> str:
        return (
            f"{self.output_tokens:,} tokens: the first after {self.ttft_s:.4g} s, "
            f"then {self.tpot_s:.4g} s a token, {self.total_s:.4g} s in all"
        )

    def to_dataframe(self) -> pandas.DataFrame:
        """The decode steps as rows, with the columns of `roofcast predict`."""
        return self.steps.to_dataframe()

    @property
    def decode_causes_s(self) -> dict[str, float]:
        """Seconds of all decode steps by cause; they sum to total minus TTFT."""
        shape = self.itl_s.shape
        return {
            name: float(np.sum(np.broadcast_to(self.steps.causes[name], shape))) for name in CAUSES
        }


def decode(where: Setup, prompt: int, output: int, batch: ArrayLike = 1) -> Trajectory:
    """Forecast a reply of `output` tokens to a prompt of `prompt`, `batch` of them at once.

    Raises InputError for an empty reply or a length beyond the model's limit.
    """
    if output < 1:
        raise InputError(f"output must be at least 1 token, not {output}")
    where.check_context(prompt + output - 1)
    contexts = np.arange(prompt, prompt + output - 1, dtype=np.float64)
    return Trajectory(where.prefill(batch, prompt), where.decode(batch, contexts))
