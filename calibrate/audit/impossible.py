"""What can't be true: faster than the floor allows, more than memory holds, longer yet sooner done.

The floor moves every byte that a step needs at the datasheet's bandwidth and does every FLOP at the
datasheet's peak, with nothing in between. A measurement below it is a mistake of unit, label or
layout, or the run did less than it seems: fewer tokens, cached prompts, drafted tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofcast.calibrate.audit.costs import Cost, request_tokens
from roofcast.calibrate.audit.measured import Step, milliseconds
from roofcast.calibrate.audit.placing import Placed

ROUNDING = 0.98
"""A measurement at the floor may be rounded: only below this fraction it is impossible."""

SHORTER_RUN = 0.85
"""A longer run that takes less than this fraction of a shorter one was cut short; noise is smaller."""

DISAGREE = 0.10
"""Times of one run that are to add up may differ by so much: medians don't add up exactly."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """Something that can't be: which kind, what was measured and what is the least it could be.

    `ratio` is measured over least; `words` says it with numbers.
    """

    kind: str
    ratio: float
    words: str


def impossible(placed: Placed, cost: Cost, step: Step | None) -> list[Impossible]:
    """All that can't be true of one point; the step that gives most away comes first."""
    found = [*_step(cost, step), *_latency(placed, cost), *_rate(placed, cost)]
    found += [*_first_token(placed, cost), *_memory(placed, cost), *_sum_of_parts(placed)]
    return sorted(found, key=lambda each: each.ratio)


def _step(cost: Cost, step: Step | None) -> Iterable[Impossible]:
    if step is None or step.basis != "tpot":
        return
    yield from _below(
        "faster_than_physics", step.step_s, cost.least.step_s, "a step at this batch and context"
    )


def _latency(placed: Placed, cost: Cost) -> Iterable[Impossible]:
    """A static batch has to be prefilled and then decoded step by step."""
    latency = placed.record.value("e2e_s")
    if latency is None or not placed.record.static:
        return
    _, output = request_tokens(placed.record)
    least = cost.least.together_s + max(output - 1.0, 0.0) * cost.least.step_s
    yield from _below("faster_than_physics", latency, least, "prefill and all steps")


def _rate(placed: Placed, cost: Cost) -> Iterable[Impossible]:
    """Each reply takes the device the arithmetic of its prompt and tokens, and its cache is read.

    Weights are shared and arithmetic overlaps with memory traffic, so that nothing is added up that
    could run at the same time: max(prompt FLOPs + (O - 1) token FLOPs, (O - 1) cache reads).
    """
    record = placed.record
    prompt, output = request_tokens(record)
    spent = _seconds_a_reply(placed)
    if record.static or "disaggregated" in record.flags or spent is None:
        return
    # A rank computes one of the data-parallel groups and one stage of the pipeline at a time.
    ranks = placed.setup.parallelism
    groups = ranks.data * min(ranks.pipeline, cost.batch)
    together = max(cost.batch / groups, 1.0) * ranks.data * ranks.pipeline
    steps = max(output - 1.0, 0.0)
    read = cost.least.prompt_flops_s / (ranks.data * ranks.pipeline) if prompt > 0 else 0.0
    arithmetic = read + steps * cost.least.flops_s / together
    least = max(arithmetic, steps * cost.least.kv_s / together)
    yield from _below(
        "more_than_physics",
        spent * (placed.replicas or 1.0),
        least,
        "a reply and its prompt, of the device,",
    )


def _seconds_a_reply(placed: Placed) -> float | None:
    """Seconds of the instance for one reply: its tokens over the token rate, or latency / in flight."""
    record = placed.record
    output, rate = record.value("output_tokens"), record.value("output_tokens_per_s")
    ttft, tpot, flying = (record.value(name) for name in ("ttft_s", "tpot_s", "batch"))
    if output is None:
        return None
    if rate is not None:
        return output / rate
    if ttft is None or tpot is None or flying is None:
        return None
    return (ttft + (output - 1.0) * tpot) / flying


def _first_token(placed: Placed, cost: Cost) -> Iterable[Impossible]:
    """A prompt has to be read; in a static batch half of them before the median first token."""
    ttft, prompt = placed.record.value("ttft_s"), placed.record.value("input_tokens") or 0.0
    if ttft is None or prompt < 1 or placed.record.value("e2e_s") == ttft:
        return
    half = cost.least.together_s / 2.0 if placed.record.static else 0.0
    least = max(cost.least.prompt_s, half)
    yield from _below("prompt_faster_than_physics", ttft, least, "reading the prompt")


def _memory(placed: Placed, cost: Cost) -> Iterable[Impossible]:
    record, most, batch = placed.record, cost.least.resident, cost.batch
    waiting_counted = record.static or record.ttft_s is not None
    if not cost.counted or batch <= most or (most > 0 and not waiting_counted):
        return
    words = (
        f"{batch:,.0f} sequences of {cost.context:,.0f} tokens and more; the memory of "
        f"{placed.setup.device.id} holds {most:,.1f} beside the weights"
        if most > 0
        else f"the weights alone outgrow the memory of {placed.setup.parallelism.devices} x "
        f"{placed.setup.device.id}"
    )
    yield Impossible("does_not_fit", most / batch, words)


def _sum_of_parts(placed: Placed) -> Iterable[Impossible]:
    """The latency of one reply is its first token and all others, where all three were measured."""
    record = placed.record
    names = ("e2e_s", "ttft_s", "tpot_s", "output_tokens")
    latency, ttft, tpot, output = (record.value(name) for name in names)
    if not record.static or latency is None or ttft is None or tpot is None or output is None:
        return
    parts = ttft + (output - 1.0) * tpot
    if abs(latency / parts - 1.0) > DISAGREE:
        words = (
            f"latency {latency:.3g} s, but first token and {output - 1.0:,.0f} others add up to "
            f"{parts:.3g} s"
        )
        yield Impossible("times_disagree", min(latency / parts, 1.0), words)


def _below(kind: str, measured_s: float, least_s: float, what: str) -> Iterable[Impossible]:
    if measured_s < ROUNDING * least_s:
        words = (
            f"{milliseconds(measured_s)} measured; {what} takes at least {milliseconds(least_s)}"
        )
        yield Impossible(kind, measured_s / least_s, words)


def sooner_though_longer(points: Sequence[tuple[Placed, Cost]]) -> dict[int, str]:
    """Static runs that took less time than a run of fewer tokens, all else equal: they were cut short.

    By index into `points`.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, (placed, _) in enumerate(points):
        if placed.record.static and placed.record.e2e_s is not None:
            key = (placed.record.file, id(placed.setup), placed.record.value("batch"))
            groups.setdefault(key, []).append(index)
    found: dict[int, str] = {}
    for rows in groups.values():
        for row in rows:
            words = _shorter(points, row, rows)
            if words:
                found[row] = words
    return found


def _shorter(points: Sequence[tuple[Placed, Cost]], row: int, rows: Sequence[int]) -> str:
    mine = points[row][0].record
    prompt, output = request_tokens(mine)
    for other in rows:
        theirs = points[other][0].record
        less = request_tokens(theirs)
        if less[0] <= prompt and less[1] < output:
            long_s, short_s = mine.value("e2e_s") or 0.0, theirs.value("e2e_s") or 0.0
            if long_s < SHORTER_RUN * short_s:
                return (
                    f"{output:,.0f} tokens in {long_s:.3g} s, yet {less[1]:,.0f} tokens took "
                    f"{short_s:.3g} s in {theirs.where or 'another run'}"
                )
    return ""
