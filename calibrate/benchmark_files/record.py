"""One measured point of a benchmark, whatever tool wrote it: SI units, each number with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.serving_points.points import Point

BatchKind = Literal["static", "single", "achieved", "littles_law", "requested"]

BATCH_WORDS: Final[Mapping[BatchKind, str]] = {
    "static": "a fixed batch, started together",
    "single": "one sequence",
    "achieved": "requests in flight, as the tool measured them",
    "littles_law": "requests in flight, by Little's law: request rate x mean latency",
    "requested": "requests asked for; how many were in flight isn't in the file",
}

FLAG_WORDS: Final[Mapping[str, str]] = {
    "batch_only_requested": "the file says how many requests were asked for, not how many ran",
    "disaggregated": "prefill and decode ran on different devices",
    "failed_requests": "some requests failed",
    "first_token_taken_out": "the file's time per token includes the first one, which was taken out",
    "multi_token_chunks": "stream chunks hold several tokens: ITL is longer than TPOT",
    "nominal_lengths": "lengths are those asked for, not those that ran",
    "prefill_included": "the time includes reading the prompt",
    "prompt_cached": "part of the prompt came from a cache",
    "prompt_in_time": "prompt and reply were timed together",
    "retokenised": "the tool's two token counts differ",
    "spec_decode": "speculative decoding was on",
    "tpot_includes_ttft": "what the file calls time per token includes the first token",
    "no_requests": "no request completed",
}
"""What a reader can notice about a point."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in SI units and where it comes from: a field's path, or how it was derived."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Record:
    """One point of one file. A quantity that the file doesn't hold is None.

        `batch` counts the sequences of the whole instance: those decoding together in a static run,
        those in flight, prefill included, in a served one; `batch_kind` says which and how it is known.
        `tpot_s` excludes the first token, `output_tokens_per_s` is of the whole instance and counts
        generated tokens only. `step_s` is the time of one step where steps yield several tokens
        (speculative decoding).
    `tpot_sd_s` is the spread over `samples` requests or runs.
    """

    file: str
    where: str
    format: str
    batch: Quantity | None = None
    batch_kind: BatchKind = "requested"
    requested: Quantity | None = None
    input_tokens: Quantity | None = None
    output_tokens: Quantity | None = None
    tpot_s: Quantity | None = None
    ttft_s: Quantity | None = None
    e2e_s: Quantity | None = None
    output_tokens_per_s: Quantity | None = None
    step_s: Quantity | None = None
    tokens_per_step: Quantity | None = None
    tpot_sd_s: Quantity | None = None
    samples: Quantity | None = None
    replicas: Quantity | None = None
    stated: Conditions = field(default_factory=Conditions)
    flags: tuple[str, ...] = ()
    point: Point | None = None

    @property
    def name(self) -> str:
        """File and place, as messages show it."""
        return f"{self.file} {self.where}".rstrip()

    @property
    def static(self) -> bool:
        """Whether all sequences start together, so that no prompt is read while others decode."""
        return self.batch_kind in ("static", "single")

    @property
    def context(self) -> float | None:
        """Mean tokens in the cache when a step starts: the prompt and half of the reply.

        The k-th of O - 1 steps starts with I + k - 1 tokens, hence I + (O - 2) / 2 on average.
        """
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens.value + max(self.output_tokens.value - 2.0, 0.0) / 2.0

    def value(self, name: str) -> float | None:
        """A quantity's number by its field name."""
        found: Quantity | None = getattr(self, name)
        return None if found is None else found.value

    def sources(self) -> dict[str, str]:
        """Where each known number comes from."""
        found = {name: getattr(self, name) for name in _QUANTITIES}
        return {name: quantity.source for name, quantity in found.items() if quantity is not None}


_QUANTITIES = (
    "batch",
    "requested",
    "input_tokens",
    "output_tokens",
    "tpot_s",
    "ttft_s",
    "e2e_s",
    "output_tokens_per_s",
    "step_s",
    "tokens_per_step",
)
