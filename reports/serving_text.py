"""A served trace in words, tables, rows and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from roofcast.calibrate.served_runs import Agreement
from roofcast.reports import units
from roofcast.reports.tables import Column, Table
from roofcast.simulator.batching import Served
from roofcast.simulator.requests import Requests
from roofcast.simulator.scenario import Outcome
from roofcast.simulator.scheduler import Policy
from roofcast.simulator.serving_stats import Objectives, Spread, Summary, Windows

REQUEST_COLUMNS = (
    "arrival_s",
    "input_tokens",
    "output_tokens",
    "priority",
    "cached_tokens",
    "scheduled_s",
    "first_token_s",
    "last_token_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "preemptions",
)
_LATENCIES = {
    "TTFT": "ttft_s",
    "TPOT": "tpot_s",
    "between tokens": "itl_s",
    "end to end": "e2e_s",
    "in the queue": "queue_s",
}
_DIGITS = 9  # nanoseconds


def describe(outcome: Outcome) -> dict[str, Any]:
    """What `--json` prints: the scenario, the limits, the run in numbers."""
    where, policy = outcome.simulation.where, outcome.simulation.policy
    return {
        "model": where.architecture.name,
        "device": where.device.id,
        "engine": where.profile.engine,
        "profile": where.profile.name,
        "devices": where.parallelism.devices,
        "policy": dataclasses.asdict(policy),
        "objectives": dataclasses.asdict(outcome.scenario.objectives),
        **flat(outcome.summary),
    }


def flat(summary: Summary) -> dict[str, Any]:
    """A summary as JSON values; what is not a number is null."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(summary):
        value = getattr(summary, field.name)
        if isinstance(value, Spread):
            spread = {"mean": value.mean, **value.quantiles, "max": value.largest}
            value = {name: _known(each) for name, each in spread.items()}
        found[field.name] = value
    return found


def request_rows(served: Served) -> list[dict[str, Any]]:
    """A row a request with `REQUEST_COLUMNS`, times on the clock of the trace."""
    requests = served.requests
    columns = {
        "arrival_s": requests.arrival_s,
        "input_tokens": requests.input_tokens,
        "output_tokens": requests.output_tokens,
        "priority": requests.priority,
        "cached_tokens": requests.cached_tokens,
        "scheduled_s": served.scheduled_s,
        "first_token_s": served.first_token_s,
        "last_token_s": served.last_token_s,
        "ttft_s": served.ttft_s,
        "tpot_s": served.tpot_s,
        "e2e_s": served.e2e_s,
        "preemptions": served.preemptions,
    }
    lists = [values.tolist() for values in columns.values()]
    return [
        {name: _cell(value) for name, value in zip(columns, row, strict=True)}
        for row in zip(*lists, strict=True)
    ]


def window_rows(windows: Windows) -> list[dict[str, Any]]:
    """A row a window of time."""
    names = [each.name for each in dataclasses.fields(windows) if each.name != "width_s"]
    lists = [getattr(windows, name).tolist() for name in names]
    return [
        {name: _cell(value) for name, value in zip(names, row, strict=True)}
        for row in zip(*lists, strict=True)
    ]


def _cell(value: float | int) -> float | int | None:
    return value if isinstance(value, int) else _known(round(value, _DIGITS))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def traffic(requests: Requests) -> str:
    """Who comes: how many requests of what mean lengths."""
    return (
        f"{len(requests):,} requests of {requests.input_tokens.mean():,.0f} tokens in and "
        f"{requests.output_tokens.mean():,.0f} out on average"
    )


def limits(policy: Policy) -> str:
    """What the scheduler keeps to."""
    return (
        f"{policy.token_budget:,} tokens a step, {policy.max_sequences:,} sequences at once, a KV "
        f"cache of {policy.kv_tokens:,} tokens in blocks of {policy.block_tokens}"
    )


def latencies(summary: Summary) -> Table:
    """Latencies by quantile."""
    spreads = [getattr(summary, name) for name in _LATENCIES.values()]
    names = ["mean", *spreads[0].quantiles, "max"]
    ranks = {"p50": 0, "mean": 1, "p95": 0, "p99": 1, "p90": 3, "max": 2}
    columns = [Column("", list(_LATENCIES), right=False)]
    for name in names:
        cells = [
            units.seconds({"mean": spread.mean, **spread.quantiles, "max": spread.largest}[name])
            for spread in spreads
        ]
        columns.append(Column(name, cells, rank=ranks[name]))
    return Table(tuple(columns))


def sentences(summary: Summary, objectives: Objectives) -> list[str]:
    """Throughput, load, goodput, preemption."""
    said = [
        f"{units.significant(summary.output_tokens_per_s)} output tokens/s "
        f"({units.significant(summary.total_tokens_per_s)} with prompts), "
        f"{units.significant(summary.requests_per_s)} requests/s over "
        f"{units.seconds(summary.duration_s)}; busy {units.percent(summary.busy)} of the time.",
        f"On average {units.significant(summary.running)} sequences ran and "
        f"{units.significant(summary.waiting)} waited (at most {summary.most_waiting:,}); the KV "
        f"cache was {units.percent(summary.kv_use)} full, {units.percent(summary.most_kv_use)} at "
        "most.",
    ]
    if summary.preemptions:
        said.append(
            f"{summary.preemptions:,} preemptions made it read "
            f"{summary.recomputed_tokens:,} tokens again."
        )
    if objectives:
        said.append(
            f"{units.percent(summary.good_share)} of the requests keep {_promise(objectives)}: "
            f"goodput {units.significant(summary.good_requests_per_s)} requests/s."
        )
    return said


def _promise(objectives: Objectives) -> str:
    parts = [
        f"{name} up to {units.seconds(limit)}"
        for name, limit in (("TTFT", objectives.ttft_s), ("TPOT", objectives.tpot_s))
        if limit is not None
    ]
    return " and ".join(parts)


def agreement(rows: Sequence[Agreement]) -> Table:
    """Measured beside simulated."""
    write = {True: units.seconds, False: units.significant}
    return Table(
        (
            Column("", [_METRICS[row.metric] for row in rows], right=False),
            Column("", [row.statistic for row in rows], right=False),
            Column("measured", [write[row.metric in _TIMES](row.measured) for row in rows]),
            Column("simulated", [write[row.metric in _TIMES](row.simulated) for row in rows]),
            Column("error", [f"{100 * row.error:+.1f} %" for row in rows]),
        )
    )


_METRICS = {
    "output_tokens_per_s": "output tokens/s",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "e2e_s": "end to end",
    "running": "running",
    "waiting": "waiting",
}
_TIMES = frozenset(("ttft_s", "tpot_s", "e2e_s"))


def agreement_json(rows: Sequence[Agreement]) -> list[dict[str, Any]]:
    """The same as JSON values."""
    return [{**dataclasses.asdict(row), "error": row.error} for row in rows]
