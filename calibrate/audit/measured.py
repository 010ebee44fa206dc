"""The measured decode step of a point, from whatever its file holds, and where a step's time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roofcast.calibrate.audit.costs import PARTS, Cost
from roofcast.calibrate.audit.placing import Placed

Basis = Literal["tpot", "latency", "throughput"]
WATERFALL = (*PARTS, "prefill_interference", "unexplained")

_PROMPTS_FIRST = ("sglang",)


@dataclass(frozen=True, slots=True)
class Step:
    """A measured decode step: `step_s` for `tokens` of each sequence, told from `basis`.

    tpot: measured as such. latency: (whole latency - forecast prefill) / (tokens - 1). throughput:
    batch / tokens per second, prefill included.
    """

    step_s: float
    tokens: float
    basis: Basis
    source: str


def measured_step(placed: Placed, cost: Cost) -> Step | None:
    """The step that a record's numbers imply; None where they imply none."""
    record = placed.record
    if record.tpot_s is not None:
        found = record.step_s or record.tpot_s
        several = record.value("tokens_per_step") if record.step_s is not None else None
        return Step(found.value, several or 1.0, "tpot", found.source)
    output = record.value("output_tokens") or 0.0
    if record.e2e_s is not None and record.static and output > 1:
        rest = (record.e2e_s.value - first_token_s(placed, cost)) / (output - 1.0)
        if rest > 0:
            words = f"({record.e2e_s.source} - forecast prefill) / (output tokens - 1)"
            return Step(rest, 1.0, "latency", words)
    if record.output_tokens_per_s is not None and record.batch is not None and cost.counted:
        value = record.batch.value / record.output_tokens_per_s.value
        words = f"{record.batch.source} / {record.output_tokens_per_s.source}"
        return Step(value, 1.0, "throughput", words)
    return None


def first_token_s(placed: Placed, cost: Cost) -> float:
    """Seconds to the first token of a static batch: as measured, else its prefill as forecast."""
    return placed.record.value("ttft_s") or cost.together_s


def interference_s(placed: Placed, cost: Cost) -> float:
    """Seconds that prompts of other requests add to a token: T - D = n P / O.

    n = B (C - 1) / C of the other requests come in while a reply of O tokens is written, C of them in
    flight. Where prompts ride in decode steps, P is without the weights that the step reads anyway.
    """
    record = placed.record
    output, flying = record.value("output_tokens"), record.value("batch")
    if record.static or "disaggregated" in record.flags or output is None or flying is None:
        return 0.0
    others = flying / (placed.replicas or 1.0)
    met = cost.batch * max(others - 1.0, 0.0) / max(others, 1.0)
    first = placed.setup.profile.engine in _PROMPTS_FIRST
    added = cost.prompt_s - (0.0 if first else cost.parts_s["weights"])
    return met * max(added, 0.0) / output


def waterfall(placed: Placed, cost: Cost, step: Step) -> Mapping[str, float]:
    """Seconds of the measured step by part; they sum to it.

    What the forecast doesn't explain is `unexplained`; below zero where the step was faster.
    """
    parts = dict(cost.parts_s)
    parts["prefill_interference"] = interference_s(placed, cost)
    parts["unexplained"] = step.step_s - sum(parts.values())
    return {name: parts[name] for name in WATERFALL}


def milliseconds(seconds: float) -> str:
    """A time for a sentence.

    >>> milliseconds(0.01234), milliseconds(2.5)
    ('12.3 ms', '2,500 ms')
    """
    value = 1e3 * seconds
    return f"{value:,.0f} ms" if value >= 99.95 else f"{value:#.3g} ms"
