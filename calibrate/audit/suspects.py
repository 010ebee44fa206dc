"""Ranked suspects: why a point is slower than forecast, faster than possible, or not what it seems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from roofcast.calibrate.audit.costs import request_tokens
from roofcast.calibrate.audit.evidence import Evidence, Suspect
from roofcast.calibrate.audit.hypotheses import explained
from roofcast.calibrate.audit.measured import milliseconds

NOT_REACHED = 0.85
"""In flight over asked for, below which the batch wasn't reached."""

_THOUSAND = (300.0, 3000.0)
_QUEUEING = 2.0
_NOTABLE = 0.2
_SAME = 0.03


def suspects(point: Evidence, run: Sequence[Evidence]) -> list[Suspect]:
    """Suspects of one point, the one that explains most first; `run` are the points measured with it.

    A hypothesis that several points share counts for more; a unit or a label that turns an impossible
    number into the forecast one counts most.
    """
    found = [*_labels(point), *_shortened(point)]
    # What slows a run down doesn't explain one that is too fast.
    found += [_lessened(suspect) if point.found else suspect for suspect in _load(point)]
    if point.step is not None and (point.slow or point.fast):
        way = (point.slow, point.fast)
        alike = [each for each in run if each.step is not None and (each.slow, each.fast) == way]
        found += [*explained(point, alike or [point]), *_profile(point)]
    found += _shares(point)
    return sorted(_best(found), key=lambda suspect: -suspect.share)


def _lessened(suspect: Suspect) -> Suspect:
    return replace(suspect, share=0.4 * suspect.share)


def _best(found: Iterable[Suspect]) -> Iterable[Suspect]:
    """The best of each cause."""
    by_cause: dict[str, Suspect] = {}
    for suspect in found:
        held = by_cause.get(suspect.cause)
        if held is None or suspect.share > held.share:
            by_cause[suspect.cause] = suspect
    return by_cause.values()


def _profile(point: Evidence) -> Iterable[Suspect]:
    """The forecast itself, where its profile was measured on something else."""
    profile = point.placed.setup.profile
    if point.found or profile.engine == "ideal":
        return
    borrowed = profile.device != point.placed.setup.device.id or "transferred" in profile.origin
    if borrowed or point.cost.extrapolates:
        why = f"profile {profile.name} " + (
            "is a relative's" if borrowed else "wasn't measured at this batch and context"
        )
        yield Suspect("profile", 0.6, f"the forecast rather than the run: {why}")


def _labels(point: Evidence) -> Iterable[Suspect]:
    """Numbers that mean something else: units, totals, per GPU, first token included."""
    if point.step is None:
        return
    yield from _units(point)
    yield from _first_included(point)
    yield from _rates(point)


def _units(point: Evidence) -> Iterable[Suspect]:
    low, high = _THOUSAND
    if low < point.ratio < high:
        words = "milliseconds were read as seconds"
    elif low < 1.0 / point.ratio < high:
        words = "seconds were labelled milliseconds"
    else:
        return
    factor = 1e-3 if point.ratio > 1 else 1e3
    yield Suspect(
        "unit",
        0.98,
        f"{words}: {milliseconds(factor * point.measured_s)} would be near the forecast "
        f"{milliseconds(point.expected_s)}",
    )


def _first_included(point: Evidence) -> Iterable[Suspect]:
    """Latency over all tokens rather than over those after the first."""
    record = point.placed.record
    latency, ttft, tpot = (record.value(name) for name in ("e2e_s", "ttft_s", "tpot_s"))
    _, output = request_tokens(record)
    if "tpot_includes_ttft" in record.flags:
        share = 0.9
    elif latency and ttft and tpot and ttft > 2 * _SAME * latency:
        share = 0.9 if abs(tpot * output / latency - 1.0) < _SAME else 0.0
    else:
        share = 0.0
    if share and ttft and tpot:
        words = (
            f"a TPOT that includes the first token: without its {milliseconds(ttft)}, "
            f"{milliseconds(max(tpot * output - ttft, 0.0) / max(output - 1.0, 1.0))} remain"
        )
        yield Suspect("tpot_includes_ttft", share, words)


def _rates(point: Evidence) -> Iterable[Suspect]:
    """Token rates against batch / TPOT: input tokens counted, or per GPU.

    Over a request C in flight yield O tokens each in L seconds, so rate x TPOT / decoding is about 1.
    """
    record = point.placed.record
    rate, tpot = record.value("output_tokens_per_s"), record.value("tpot_s")
    prompt, output = request_tokens(record)
    copies = point.placed.replicas or 1.0
    devices = point.placed.setup.parallelism.devices * copies
    if rate is None or tpot is None or not point.cost.counted:
        return
    seen = rate * tpot / (point.cost.batch * copies)
    total = (prompt + output) / output
    if abs(seen / total - 1.0) < 0.1 and total > 1.25:
        words = f"{rate:,.0f} tokens/s count the prompts too: {rate / total:,.0f} are output"
        yield Suspect("total_tokens", 0.95, words)
    elif devices > 1 and abs(seen * devices - 1.0) < 0.1:
        words = f"{rate:,.0f} tokens/s are per GPU: {rate * devices:,.0f} of all {devices:.0f}"
        yield Suspect("per_gpu", 0.95, words)


def _load(point: Evidence) -> Iterable[Suspect]:
    """A batch that was not reached, more than memory holds, and queues."""
    record, cost = point.placed.record, point.cost
    asked, flying = record.value("requested"), record.value("batch")
    if asked and flying and record.batch_kind != "requested" and flying < NOT_REACHED * asked:
        words = (
            f"the batch was not reached: {asked:,.0f} requests in flight were asked for, "
            f"{flying:,.1f} were there ({record.batch.source if record.batch else ''})"
        )
        yield Suspect("batch_not_reached", 1.0 - flying / asked, words)
    wanted = max(asked or 0.0, flying or 0.0) / (point.placed.replicas or 1.0)
    if cost.resident is not None and cost.counted and wanted > cost.resident:
        words = (
            f"over-admission: memory holds {cost.resident:,} sequences at full length as engines "
            f"plan it, {wanted:,.0f} were sent; the rest waits or is evicted"
        )
        yield Suspect("over_admission", min(1.0 - cost.resident / wanted, 0.9), words)
    yield from _queue(point)


def _queue(point: Evidence) -> Iterable[Suspect]:
    record = point.placed.record
    ttft, tpot = record.value("ttft_s"), record.value("tpot_s")
    if ttft is None or tpot is None or record.static:
        return
    _, output = request_tokens(record)
    others = (record.value("batch") or 1.0) / (point.placed.replicas or 1.0) - 1.0
    # All start at once: on average half of the other prompts are read before one's own.
    own = point.cost.prompt_s * (1.0 + max(others, 0.0) / 2.0) + point.expected_s
    if ttft > _QUEUEING * own and ttft > _NOTABLE * output * tpot:
        words = (
            f"requests queue: {milliseconds(ttft)} to the first token, where the prompts that go "
            f"before and its own explain {milliseconds(own)}"
        )
        yield Suspect("queueing", min(1.0 - own / ttft, 0.6), words)


def _shortened(point: Evidence) -> Iterable[Suspect]:
    """Runs that did less than their label says."""
    kinds = {each.kind: each for each in point.found}
    _, output = request_tokens(point.placed.record)
    shorter = kinds.get("faster_than_physics")
    derived = point.step is not None and point.step.basis != "tpot"
    if shorter is not None and point.placed.record.static and derived:
        words = f"replies that ended after about {shorter.ratio * output:,.0f} of {output:,.0f}"
        yield Suspect("ended_early", 0.85, f"{words} tokens, or earlier: {shorter.words}")
    for kind in ("prompt_faster_than_physics", "more_than_physics"):
        if kind in kinds:
            words = f"prompts found in a prefix cache, or shorter ones: {kinds[kind].words}"
            yield Suspect("cached_prompts", 0.7, words)
    if "does_not_fit" in kinds:
        yield Suspect("layout_or_waves", 0.8, _not_together(point, kinds["does_not_fit"].words))


def _not_together(point: Evidence, words: str) -> str:
    most = point.cost.least.resident
    if most < 1:
        return f"more devices or narrower weights than stated: {words}"
    return f"not all at once: they ran in waves of at most {most:,.0f}, or on more devices: {words}"


def _shares(point: Evidence) -> Iterable[Suspect]:
    """Parts of the step that someone should know of."""
    if point.step is None:
        return
    waiting = point.interference_s / point.measured_s
    if waiting > _NOTABLE and not point.fast:
        words = (
            f"prompts of other requests take about {milliseconds(point.interference_s)} of each "
            "token: chunked or separate prefill would show"
        )
        yield Suspect("prefill_interference", min(waiting, 0.6), words)
    wire = point.cost.parts_s["collectives"] / point.measured_s
    if wire > _NOTABLE and not point.fast:
        words = f"collectives take {milliseconds(point.cost.parts_s['collectives'])} of the step"
        yield Suspect("collectives", min(wire, 0.5), words)
