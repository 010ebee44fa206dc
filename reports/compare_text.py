"""Comparisons in words, tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from roofcast.reports import units, words
from roofcast.reports.tables import Column, Table
from roofcast.simulator.comparison import (
    Contender,
    Overtaking,
    TensorCurve,
    Tradeoff,
    batches_up_to,
    contexts_up_to,
    overtaking,
)
from roofcast.simulator.planning.prices import Power
from roofcast.simulator.prediction import Forecast


@dataclass(frozen=True)
class Row:
    """One contender at one batch."""

    who: Contender
    batch: int
    fits: bool
    forecast: Forecast
    usd_per_million_tokens: float | None
    joules_per_token: float | None


def rows(who: Sequence[Contender], batches: Sequence[int], context: int, power: Power) -> list[Row]:
    """Every contender at every batch, batch by batch."""
    made = []
    for batch in batches:
        for each in who:
            step = each.where.decode(batch, context)
            cost, energy = (
                each.usd_per_million_tokens(step, power),
                each.joules_per_token(step, power),
            )
            made.append(
                Row(
                    each,
                    batch,
                    batch <= each.largest_batch,
                    step,
                    None if cost is None else float(cost),
                    None if energy is None else float(energy),
                )
            )
    return made


def table(made: Sequence[Row]) -> Table:
    """Speed, cost, energy, capacity and what limits, a row a contender and batch."""

    def column(header: str, cells: list[str], rank: int = 0, *, right: bool = True) -> Column:
        return Column(header, cells, right, rank)

    steps = [row.forecast for row in made]
    return Table(
        (
            column("batch", [f"{row.batch:,}" for row in made]),
            column("device", [name(row.who) for row in made], right=False),
            column("step", [units.seconds(float(step.step_time_s)) for step in steps]),
            column("/user", [units.significant(float(s.tokens_per_s_per_user)) for s in steps]),
            column("/device", [units.significant(float(s.tokens_per_s_per_device)) for s in steps]),
            column("bound", [str(step.bound) for step in steps], 1, right=False),
            column("MBU", [units.percent(float(step.mbu)) for step in steps], 5),
            column("USD/M tokens", [_known(row.usd_per_million_tokens) for row in made], 2),
            column("J/token", [_known(row.joules_per_token) for row in made], 3),
            column("fits", ["yes" if row.fits else "NO" for row in made], right=False),
            column("most at once", [f"{row.who.largest_batch:,}" for row in made], 4),
        )
    )


def name(who: Contender) -> str:
    """A device, with how many of it."""
    return who.where.device.id if who.devices == 1 else f"{who.devices} x {who.where.device.id}"


def overtakings(who: Sequence[Contender], batch: int, context: int, power: Power) -> list[str]:
    """Who is ahead of whom, and where that changes: per device over batch, over context, in cost."""
    said = []
    for one, other in combinations(who, 2):
        names = (name(one), name(other))
        x = batches_up_to(min(one.largest_batch, other.largest_batch))
        swept = [each.where.decode(x, context) for each in (one, other)]
        speed = [step.tokens_per_s_per_device for step in swept]
        found = overtaking(names, x, *speed)
        said.append(_sentence(found, "gives more tokens/s per device", "batch", int(x[-1])))
        costs = [
            each.usd_per_million_tokens(step, power)
            for each, step in zip((one, other), swept, strict=True)
        ]
        if costs[0] is not None and costs[1] is not None:
            found = overtaking(names, x, 1.0 / costs[0], 1.0 / costs[1])
            said.append(_sentence(found, "is cheaper per token", "batch", int(x[-1])))
        most = min(one.longest_context, other.longest_context, *_limits(one, other))
        x = contexts_up_to(most)
        speed = [each.where.decode(batch, x).tokens_per_s_per_device for each in (one, other)]
        found = overtaking(names, x, *speed)
        what = f"gives more tokens/s per device at batch {batch:,}"
        said.append(_sentence(found, what, "context", int(x[-1])))
    return said


def _limits(*who: Contender) -> list[int]:
    return [
        each.where.architecture.max_context - 1
        for each in who
        if each.where.architecture.max_context
    ]


def _sentence(found: Overtaking, what: str, axis: str, end: int) -> str:
    if not found.at:
        return f"{found.leader} {what} than {found.follower} at every {axis} up to {end:,}."
    changes = [f"{axis} {words.about(at)}" for at in found.at]
    turns = ", and again at ".join(changes)
    return f"{found.leader} {what} than {found.follower} up to {turns}, where they change places."


def fronts(found: Sequence[Tradeoff]) -> Table:
    """The ends and the middle of every trade-off."""
    picked = [
        (front, index)
        for front in found
        for index in dict.fromkeys((0, len(front.batch) // 2, len(front.batch) - 1))
    ]
    return Table(
        (
            Column("device", [front.name for front, _ in picked], right=False),
            Column("TP", [str(front.tensor[i]) for front, i in picked]),
            Column("batch", [f"{front.batch[i]:,}" for front, i in picked]),
            Column("tok/s/user", [units.significant(float(f.per_user[i])) for f, i in picked]),
            Column("tok/s/device", [units.significant(float(f.per_device[i])) for f, i in picked]),
        )
    )


def tensor_table(curve: TensorCurve) -> Table:
    """What each number of ranks brings."""
    return Table(
        (
            Column("TP", [str(n) for n in curve.ranks]),
            Column("one user", [units.seconds(float(s)) for s in curve.single_s]),
            Column("speed-up", [f"{each:.2f} x" for each in curve.speedup]),
            Column("in collectives", [units.percent(float(s)) for s in curve.single_links]),
            Column("full batch", [f"{n:,}" for n in curve.saturated_batch]),
            Column(
                "tok/s/device", [units.significant(float(s)) for s in curve.saturated_per_device]
            ),
            Column("in collectives", [units.percent(float(s)) for s in curve.saturated_links]),
        )
    )


def tensor_verdict(curve: TensorCurve) -> str:
    """Whether more ranks are worth it for one user, and for throughput."""
    best = curve.best_for_one_user
    index = int(np.flatnonzero(curve.ranks == best)[0])
    most = int(curve.ranks[np.argmax(curve.saturated_per_device)])
    speed = float(curve.speedup[index])
    if best == int(curve.ranks[0]):
        alone = f"One user is served fastest with TP {best}: more ranks only make it slower"
    else:
        alone = (
            f"One user is served fastest with TP {best}, {speed:.2f} times as fast as with TP "
            f"{curve.ranks[0]} on {best / curve.ranks[0]:.0f} times the devices"
        )
    return f"{alone}. With a full batch a device gives most with TP {most}."


def describe(made: Sequence[Row]) -> list[dict[str, Any]]:
    """What `--json` prints: a record a contender and batch."""
    return [
        {
            "device": row.who.where.device.id,
            "engine": row.who.where.profile.engine,
            "profile": row.who.where.profile.name,
            "devices": row.who.devices,
            "batch": row.batch,
            "context": int(row.forecast.context),
            "step_time_s": float(row.forecast.step_time_s),
            "tokens_per_s_per_user": float(row.forecast.tokens_per_s_per_user),
            "tokens_per_s_per_device": float(row.forecast.tokens_per_s_per_device),
            "bound": str(row.forecast.bound),
            "usd_per_million_output_tokens": row.usd_per_million_tokens,
            "joules_per_output_token": row.joules_per_token,
            "fits": row.fits,
            "largest_batch": row.who.largest_batch,
            "longest_context": row.who.longest_context,
        }
        for row in made
    ]


def describe_tensor(curve: TensorCurve) -> list[dict[str, Any]]:
    """What `--json` prints of a tensor curve: a record a size."""
    return [
        {
            "tp": int(curve.ranks[i]),
            "step_time_s": float(curve.single_s[i]),
            "speedup": float(curve.speedup[i]),
            "collective_share": float(curve.single_links[i]),
            "saturated_batch": int(curve.saturated_batch[i]),
            "saturated_tokens_per_s_per_device": float(curve.saturated_per_device[i]),
            "saturated_collective_share": float(curve.saturated_links[i]),
        }
        for i in range(curve.ranks.size)
    ]


def _known(value: float | None) -> str:
    return units.UNKNOWN if value is None else units.significant(value)
