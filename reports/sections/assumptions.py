"""What a forecast takes for granted, and what the model leaves out."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from roofcast.reports import units, words
from roofcast.reports.document.blocks import Bullets, Captioned, Section, Text
from roofcast.reports.sections.cases import Case
from roofcast.reports.tables import Column, Table
from roofcast.simulator.engines import find_engine


def section(cases: Sequence[Case]) -> Section:
    """The assumptions of these very forecasts."""
    return Section("assumptions", "Assumptions", (Bullets(tuple(assumptions(cases))),))


def assumptions(cases: Sequence[Case]) -> list[str]:
    """One sentence each."""
    first = cases[0].points.work
    said = [
        "Every sequence of a batch has the same context, and the batch stays full.",
        "One decode step a token: no speculative decoding, no prefill in the step.",
        f"Weights are stored as {words.weight_format(first.architecture)}, the cache as "
        f"{first.kv_dtype}, activations as {first.activation_dtype}.",
        "Peaks are dense, from datasheets, with fp32 accumulation; GB means 1e9 bytes.",
    ]
    if any(layer.experts for layer in first.architecture.layers):
        said.append(
            "Tokens choose experts independently with a skew of "
            f"{units.significant(first.skew or 0.0)} (Zipf exponent; 0 is uniform)."
        )
    for case in cases:
        policy = case.points.memory.policy
        said.append(
            f"{case.label}: {words.layout(case.where.parallelism)}; {policy.engine} plans with "
            f"{units.percent(policy.share)} of memory, {policy.token_budget:,} tokens a step, "
            f"{policy.sequences:,} sequences at most."
        )
    return said


def limits(cases: Sequence[Case]) -> Section:
    """What is not modelled, and when that matters."""
    entries = _entries()
    engines = dict.fromkeys(case.points.work.engine for case in cases)
    known = [f"{name}: {find_engine(name).source}" for name in engines if _has_source(name)]
    return Section(
        "limits",
        "What is not modelled",
        (
            Captioned(
                "Left out of the forecasts",
                Table(
                    (
                        Column("what", [each["what"] for each in entries], right=False),
                        Column("matters when", [each["when"] for each in entries], right=False),
                        Column("error", [each["error"] for each in entries], right=False),
                    )
                ),
            ),
            *((Text(f"Kernels per step were counted from {'; '.join(known)}."),) if known else ()),
        ),
    )


def _has_source(engine: str) -> bool:
    from roofcast.simulator.engines import names

    return engine in names() and bool(find_engine(engine).source)


@cache
def _entries() -> list[dict[str, str]]:
    text = resources.files("roofcast.reports").joinpath("sections/not_modelled.toml").read_text()
    entries: list[dict[str, str]] = tomllib.loads(text)["left_out"]
    return entries
