"""Audits in tables and sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from roofcast.calibrate.audit.audit import WORDS, Audited
from roofcast.calibrate.audit.before_after import Gain
from roofcast.calibrate.audit.judging import Judgement
from roofcast.calibrate.benchmark_files.record import BATCH_WORDS
from roofcast.reports import units, words
from roofcast.reports.tables import Column, Table
from roofcast.simulator.api import Setup

PART_WORDS = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "activations": "activations",
    "compute": "compute",
    "launch_and_host": "launch and host",
    "collectives": "collectives",
    "prefill_interference": "prefill of others",
    "unexplained": "unexplained",
}
_MOST_SUSPECTS = 4


def subject(where: Setup) -> str:
    """Model, device, layout and dtypes in one line."""
    return (
        f"{where.architecture.name} on {where.device}, {words.layout(where.parallelism)}, "
        f"{words.weight_format(where.architecture)} weights, {where.kv_dtype} cache"
    )


def points(audited: Sequence[Audited]) -> Table:
    """A row a point: measured beside floor and forecast; model and device where they differ."""
    setups = {id(each.placed.setup) for each in audited if each.placed is not None}
    named = audited if len(setups) > 1 else ()
    columns = (
        Column("", [_place(each) for each in audited], False, 8),
        Column("model", [each.record.stated.model or "" for each in named], False, 9),
        Column("device", [each.record.stated.device or "" for each in named], False, 9),
        Column("batch", [_number(each.record.value("batch")) for each in audited]),
        Column("decoding", [_decoding(each) for each in audited], rank=6),
        Column("input", [_number(each.record.value("input_tokens")) for each in audited]),
        Column("output", [_number(each.record.value("output_tokens")) for each in audited]),
        Column("measured", [_measured(each) for each in audited]),
        Column("floor", [_cost(each, "floor_s") for each in audited]),
        Column("forecast", [_cost(each, "step_s") for each in audited]),
        Column("80 % range", [_range(each) for each in audited], rank=7),
        Column("MBU", [_share(each.mbu) for each in audited], rank=1),
        Column("MFU", [_share(each.mfu) for each in audited], rank=5),
        Column("tok/s", [_rate(each) for each in audited], rank=4),
        Column("", [_verdict(each) for each in audited], False),
    )
    return Table(tuple(column for column in columns if any(column.cells)))


def gravest(audited: Sequence[Audited], most: int) -> Sequence[Audited]:
    """At most so many points: those that can't be true, then those farthest from their forecast."""
    if len(audited) <= most:
        return audited
    return sorted(audited, key=_gravity, reverse=True)[:most]


def _gravity(each: Audited) -> tuple[bool, float]:
    if each.cost is None or each.step is None or not each.cost.counted:
        return each.impossible, 0.0
    return each.impossible, abs(math.log(each.step.step_s / each.cost.step_s))


def _place(each: Audited) -> str:
    return each.record.where


def _number(value: float | None) -> str:
    if value is None:
        return units.UNKNOWN
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _decoding(each: Audited) -> str:
    if each.cost is None or not each.cost.counted:
        return units.UNKNOWN
    return _number(each.cost.batch)


def _measured(each: Audited) -> str:
    if each.step is None:
        return units.UNKNOWN
    about = "" if each.step.basis == "tpot" else "~"
    return about + units.seconds(each.step.step_s)


def _cost(each: Audited, name: str) -> str:
    if each.cost is None or not each.cost.counted:
        return units.UNKNOWN
    return units.seconds(getattr(each.cost, name))


def _range(each: Audited) -> str:
    cost = each.cost
    if cost is None or not cost.counted or cost.low_s != cost.low_s or cost.low_s == cost.high_s:
        return ""
    return f"{units.seconds(cost.low_s)} to {units.seconds(cost.high_s)}"


def _share(value: float | None) -> str:
    return units.UNKNOWN if value is None else units.percent(value)


def _rate(each: Audited) -> str:
    value = each.record.value("output_tokens_per_s")
    return units.UNKNOWN if value is None else units.significant(value)


def _verdict(each: Audited) -> str:
    """The gravest flag in a word or two."""
    if each.impossible:
        return "IMPOSSIBLE"
    if "not_audited" in each.flags:
        return "not audited"
    if "faster_than_floor" in each.flags:
        return "below floor"
    if "slower_than_forecast" in each.flags:
        return "slow"
    if "faster_than_forecast" in each.flags:
        return "fast"
    known = each.step is not None and each.cost is not None and each.cost.counted
    return "as forecast" if known else "nothing to compare"


def explanation(each: Audited) -> list[str]:
    """What there is to say of one point: flags, where the time went, suspects by rank."""
    said = [f"{WORDS[flag]}." for flag in each.flags if flag in WORDS and flag != "not_audited"]
    if each.reason:
        said.append(f"Not audited: {each.reason}.")
    lines = [" ".join(sentence[:1].upper() + sentence[1:] for sentence in said)] if said else []
    split = each.waterfall
    if split is not None:
        lines.append(f"Time: {_split(split)}.")
    for rank, suspect in enumerate(each.suspects[:_MOST_SUSPECTS], start=1):
        lines.append(f"{rank}. {suspect.words[:1].upper()}{suspect.words[1:]}.")
    return lines


def _split(parts: Mapping[str, float]) -> str:
    total = sum(parts.values())
    shown = [
        f"{units.seconds(abs(value)) if value >= 0 else '−' + units.seconds(-value)} {PART_WORDS[name]}"
        for name, value in parts.items()
        if abs(value) >= 0.01 * total
    ]
    return ", ".join(shown)


def batch_source(each: Audited) -> str:
    """How the batch of a point is known."""
    record = each.record
    if record.batch is None:
        return "The batch isn't in the file."
    return f"Batch: {BATCH_WORDS[record.batch_kind]} ({record.batch.source})."


def assumptions(audited: Sequence[Audited]) -> list[str]:
    """What nobody stated, and where file and flags differ, each once."""
    assumed = dict.fromkeys(
        words_ for each in audited if each.placed is not None for words_ in each.placed.assumed
    )
    differing = dict.fromkeys(
        words_ for each in audited if each.placed is not None for words_ in each.placed.contradicted
    )
    lines = [f"Assumed: {', '.join(assumed)}."] if assumed else []
    return lines + [f"Contradiction: {each}." for each in differing]


def summary(audited: Sequence[Audited]) -> list[str]:
    """Many points in few lines: what was found how often."""
    flags = Counter(flag for each in audited for flag in each.flags)
    causes = Counter(each.suspects[0].cause for each in audited if each.suspects)
    wrong = sum(each.impossible for each in audited)
    lines = [
        f"{len(audited):,} points: {wrong:,} can't be true as labelled, "
        f"{flags['slower_than_forecast']:,} are slower and {flags['faster_than_forecast']:,} faster "
        f"than the forecast's interval, {flags['not_audited']:,} can't be audited."
    ]
    if causes:
        named = ", ".join(f"{cause} {count:,}" for cause, count in causes.most_common(8))
        lines.append(f"First suspects: {named}.")
    return lines


def gains(found: Sequence[Gain]) -> Table:
    """A row a point: measured gain with its noise, what the change allows, the verdict."""
    return Table(
        (
            Column("batch", [_number(each.before.record.value("batch")) for each in found]),
            Column("input", [_number(each.before.record.value("input_tokens")) for each in found]),
            Column(
                "output", [_number(each.before.record.value("output_tokens")) for each in found]
            ),
            Column("before", [units.seconds(each.before_s) for each in found]),
            Column("after", [units.seconds(each.after_s) for each in found]),
            Column("gain", [words.signed(each.gain) for each in found]),
            Column("noise", [f"±{units.percent(each.gain_high - each.gain)}" for each in found]),
            Column("available", [_gain(each.available) for each in found]),
            Column("at most", [words.signed(each.possible) for each in found]),
            Column(
                "reached",
                [units.UNKNOWN if e.share is None else units.percent(e.share) for e in found],
            ),
            Column("verdict", [each.verdict for each in found], False),
        )
    )


def _gain(value: float | None) -> str:
    return units.UNKNOWN if value is None else words.signed(value)


def judgement(found: Judgement) -> list[str]:
    """Precision and recall of impossible points in sentences."""
    lines = [
        f"{found.audited:,} points audited; {found.expected:,} carry a flag that says they can't be "
        f"true as labelled, {found.found:,} were found so.",
        f"Recall {units.percent(found.recall)} ({found.agreed} of {found.expected}); "
        f"{units.percent(found.recall_with_admitted)} with points called over-admitted.",
        f"Precision {units.percent(found.precision)} ({found.agreed} of {found.found}); "
        f"{units.percent(found.precision_with_doubtful)} with points flagged as mislabelled.",
    ]
    if found.unflagged:
        lines.append(f"Found without a flag: {', '.join(found.unflagged[:12])}.")
    return lines


def judged_flags(found: Judgement) -> Table:
    """How many points of each flag were found impossible."""
    return Table(
        (
            Column("flag", [each.flag for each in found.flags], False),
            Column("says", [each.kind for each in found.flags], False),
            Column("points", [f"{each.points:,}" for each in found.flags]),
            Column("audited", [f"{each.audited:,}" for each in found.flags]),
            Column("impossible", [f"{each.found:,}" for each in found.flags]),
        )
    )
