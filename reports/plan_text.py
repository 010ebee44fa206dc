"""Plans in words, tables and JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofcast.reports import units, words
from roofcast.reports.tables import Column, Table
from roofcast.simulator.planning.asked import Asked
from roofcast.simulator.planning.candidates import OFFLOADED
from roofcast.simulator.planning.plan import NO_PRICE, Deployment, Plan
from roofcast.simulator.planning.traffic import Lengths

_SAME = 5e-4
_RANKS = {"cost": "cost", "throughput": "throughput per device", "latency": "latency"}


def question(asked: Asked) -> str:
    """What was asked, in one sentence."""
    traffic, goals = asked.traffic, asked.objectives
    if traffic.users is None:
        amount = f"{units.significant(traffic.amount)} requests/s"
    else:
        amount = f"{_several(round(traffic.amount), 'user')} at once"
    hits = traffic.prefix_hits
    found = f", {units.percent(hits)} of prompts found in a prefix cache" if hits else ""
    limits = [
        f"{name} {units.seconds(value)}"
        for name, value in (("TTFT", goals.ttft_s), ("TPOT", goals.tpot_s))
        if value is not None
    ]
    within = f"; {goals.percentile:g} % within {' and '.join(limits)}" if limits else ""
    return (
        f"{asked.model.name} for {amount}, prompts of {_tokens(traffic.prompt)} and replies of "
        f"{_tokens(traffic.reply)} tokens{found}{within}."
    )


def _tokens(lengths: Lengths) -> str:
    if not lengths.deviation:
        return f"{lengths.mean:,.0f}"
    return f"{lengths.mean:,.0f} ± {lengths.deviation:,.0f}"


def tried(plan: Plan) -> str:
    """How many deployments were considered, and how they are ranked."""
    count = len(plan.deployments)
    return (
        f"{_several(plan.tried, 'deployment')} on {_several(len(plan.asked.devices), 'device')} tried, "
        f"{count:,} meet that; ranked by {_RANKS[plan.asked.rank]}."
    )


def _several(count: int, what: str) -> str:
    """A number of things, one of them without the plural.

    >>> _several(1, "device"), _several(1200, "device")
    ('1 device', '1,200 devices')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def table(plan: Plan, shown: tuple[Deployment, ...]) -> Table:
    """One row a deployment."""
    percentile = f"p{plan.asked.objectives.percentile:g}"

    def column(header: str, cells: list[str], rank: int = 0, *, right: bool = True) -> Column:
        return Column(header, cells, right, rank)

    weights = [words.weight_format(each.where.architecture) for each in shown]
    return Table(
        (
            column("device", [each.where.device.id for each in shown], right=False),
            column("devices", [f"{each.devices:,}" for each in shown]),
            column("replicas", [replicas(each) for each in shown], right=False),
            column("weights", weights, 3, right=False),
            column("cache", [each.where.kv_dtype for each in shown], 4, right=False),
            column("batch", [f"{each.batch:,.0f}" for each in shown], 6),
            column(f"TTFT {percentile}", [units.seconds(e.ttft_quantile_s) for e in shown], 2),
            column(f"TPOT {percentile}", [units.seconds(e.tpot_quantile_s) for e in shown], 1),
            column("/user", [units.significant(e.tokens_per_s_per_user) for e in shown], 7),
            column("/device", [units.significant(e.tokens_per_s_per_device) for e in shown], 5),
            column("headroom", [units.percent(each.headroom) for each in shown], 2),
            column("USD/h", [_money(each.usd_per_hour) for each in shown]),
            column("USD/M tokens", [_money(each.usd_per_million_tokens) for each in shown]),
            column("J/token", [_known(each.joules_per_token) for each in shown], 8),
            column("binds", [each.binds for each in shown], 1, right=False),
        )
    )  # fmt: skip


def replicas(deployment: Deployment) -> str:
    """The replicas of a deployment and their layout: 3 x (TP 2, PP 2)."""
    own = f"{deployment.replicas} x {layout(deployment)}"
    if deployment.prefill is None:
        return own
    reading = deployment.prefill
    ranks = words.layout(reading.where.parallelism)
    return f"{own}, prompts on {reading.replicas} x {ranks}"


def layout(deployment: Deployment) -> str:
    """How one replica is laid out."""
    return words.layout(deployment.where.parallelism)


def reasons(plan: Plan, best: Deployment) -> list[str]:
    """Why the best deployment is as fast as it is, what it holds, and how far to trust it."""
    where = best.where
    groups = where.parallelism.data
    batch = max(round(best.batch / groups), 1) * groups
    step = where.decode(batch, round(plan.asked.traffic.decode_context))
    profile = where.profile
    first = (
        f"Best: {best.devices} x {where.device.name} ({replicas(best)}) at "
        f"{units.percent(1 / (1 + best.headroom))} of what they can take; "
        f"{best.binds} stops them there."
    )
    said = [first, f"Its decode steps are {words.why(step, 0)}."]
    said.append(holds(plan, best))
    if not best.certain:
        said.append(
            f"Prompts take {units.percent(best.prompt_load)} of its time: queues so long vary from run "
            "to run, so check it with roofcast simulate."
        )
    if best.prefill is not None:
        sending = units.seconds(best.prefill.transfer_s)
        said.append(f"Sending the cache of a prompt takes {sending} (in TTFT).")
    said += [words.provenance(profile), words.trust(profile)]
    if profile.band is not None:
        said.append(within_band(plan, best))
    price = best.price
    if price is not None:
        said.append(f"Price: {price_of(best)}.")
    return said


def within_band(plan: Plan, best: Deployment) -> str:
    """What the profile's error band makes of the time per token, and whether the objective holds."""
    found = in_band(best)
    assert found is not None, "asked of a profile without a band"
    (low, high), goals = found, plan.asked.objectives
    risk = ""
    if goals.tpot_s is not None and high > goals.tpot_s:
        risk = "; at its slow end the TPOT objective is missed, so leave headroom or measure first"
    return (
        f"In that band its TPOT p{goals.percentile:g} lies from {units.seconds(low)} to "
        f"{units.seconds(high)}{risk}."
    )


def in_band(deployment: Deployment) -> tuple[float, float] | None:
    """The ends of the TPOT percentile in the profile's error band; None without one."""
    band = deployment.where.profile.band
    if band is None:
        return None
    low, high = (deployment.tpot_quantile_s * float(np.exp(end)) for end in (band.low, band.high))
    return low, high


def price_of(deployment: Deployment) -> str:
    """What one device costs, and who says so."""
    price = deployment.price
    if price is None:
        return "unknown"
    if price.rent_usd_per_hour is not None:
        return f"{_money(price.rent_usd_per_hour)} USD an hour and device ({price.source})"
    return (
        f"{price.purchase_usd:,.0f} USD a device over {price.years:g} years, and its electricity "
        f"({price.source})"
    )


def holds(plan: Plan, best: Deployment) -> str:
    """The ledger of its fullest device in one sentence."""
    ledger = best.memory(plan.asked)
    away = float(np.max(-ledger.of(OFFLOADED)))
    cache, weights = float(np.max(ledger.cache_bytes)), float(np.max(ledger.weight_bytes)) - away
    rest = float(np.max(ledger.inside_bytes)) - cache - weights
    usable = float(np.max(ledger.usable_bytes))
    moved = f" Its host keeps {units.data(away)} of experts." if away else ""
    return (
        f"Its fullest device holds {units.data(weights)} of weights, {units.data(cache)} of cache and "
        f"{units.data(rest)} of the rest within {units.data(usable)}.{moved}"
    )


def left_out(plan: Plan) -> list[str]:
    """What was rejected, counted by reason."""
    if not plan.rejected:
        return []
    return [
        "Left out:",
        *(
            f"  {count:,}: {reason} (such as {plan.examples[reason]})"
            for reason, count in plan.rejected.items()
        ),
    ]


def unreachable(plan: Plan) -> str:
    """Why nothing is left although the model fits: the best reachable, and what binds it."""
    if set(plan.rejected) == {NO_PRICE}:
        return (
            f"no price is known for {plan.examples[NO_PRICE]}; give --price "
            f"{plan.examples[NO_PRICE]}=USD_PER_HOUR, or rank by throughput or latency"
        )
    goals = plan.asked.objectives
    wanted = {"TPOT": goals.tpot_s, "TTFT": goals.ttft_s}
    parts = [
        f"{each.name} of {units.seconds(each.seconds)} is the best reachable "
        f"({words.layout(each.where.parallelism)} of {each.where.device.id}, bound by {each.bound}; "
        f"asked: {units.seconds(wanted[each.name] or 0.0)})"
        for each in plan.reachable
    ]
    counts = "; ".join(f"{reason} ({count})" for reason, count in plan.rejected.items())
    best = f"with one user, {' and '.join(parts)}; " if parts else ""
    return f"no deployment meets the objectives: {best}{counts}"


def describe(plan: Plan, top: int) -> dict[str, Any]:
    """What `--json` prints."""
    asked = plan.asked
    return {
        "model": asked.model.name,
        "rank": asked.rank,
        "percentile": asked.objectives.percentile,
        "tried": plan.tried,
        "deployments": [_record(plan, each) for each in plan.deployments[:top]],
        "rejected": [
            {"reason": reason, "count": count, "example": plan.examples[reason]}
            for reason, count in plan.rejected.items()
        ],
    }


def _record(plan: Plan, each: Deployment) -> dict[str, Any]:
    ranks, ledger = each.where.parallelism, each.memory(plan.asked)
    reading = each.prefill
    low, high = in_band(each) or (None, None)
    return {
        "device": each.where.device.id,
        "engine": each.where.profile.engine,
        "profile": each.where.profile.name,
        "devices": each.devices,
        "replicas": each.replicas,
        "tp": ranks.tensor,
        "pp": ranks.pipeline,
        "ep": ranks.expert,
        "dp": ranks.data,
        "weights": words.weight_format(each.where.architecture),
        "kv_dtype": each.where.kv_dtype,
        "batch": each.batch,
        "ttft_s": each.ttft_s,
        "ttft_percentile_s": each.ttft_quantile_s,
        "tpot_s": each.tpot_s,
        "tpot_percentile_s": each.tpot_quantile_s,
        "tpot_percentile_low_s": low,
        "tpot_percentile_high_s": high,
        "output_tokens_per_s": each.output_tokens_per_s,
        "tokens_per_s_per_user": each.tokens_per_s_per_user,
        "tokens_per_s_per_device": each.tokens_per_s_per_device,
        "capacity_per_replica": each.capacity,
        "headroom": each.headroom,
        "binds": each.binds,
        "prompt_load": each.prompt_load,
        "steady_state_checked": each.certain,
        "usd_per_hour": each.usd_per_hour,
        "usd_per_million_output_tokens": each.usd_per_million_tokens,
        "joules_per_output_token": each.joules_per_token,
        "prefill_replicas": None if reading is None else reading.replicas,
        "kv_transfer_s": None if reading is None else reading.transfer_s,
        "memory": {line.name: float(np.max(line.bytes)) for line in ledger.lines},
        "memory_origin": {line.name: line.origin for line in ledger.lines},
        "usable_bytes": float(np.max(ledger.usable_bytes)),
    }


def _money(value: float | None) -> str:
    return units.UNKNOWN if value is None else units.significant(value)


def _known(value: float | None) -> str:
    return units.UNKNOWN if value is None else units.significant(value)


def side_by_side(one: Deployment, other: Deployment) -> Table:
    """Two deployments, a row a quantity, and how the second differs."""
    rows: list[tuple[str, str, str, float | None, float | None]] = [
        ("devices", str(one.devices), str(other.devices), one.devices, other.devices)
    ]
    for name, attribute, write in (
        ("TTFT", "ttft_s", units.seconds),
        ("TTFT percentile", "ttft_quantile_s", units.seconds),
        ("TPOT", "tpot_s", units.seconds),
        ("TPOT percentile", "tpot_quantile_s", units.seconds),
        ("tokens/s/user", "tokens_per_s_per_user", units.significant),
        ("tokens/s/device", "tokens_per_s_per_device", units.significant),
        ("USD/h", "usd_per_hour", units.significant),
        ("USD/M output tokens", "usd_per_million_tokens", units.significant),
        ("J/output token", "joules_per_token", units.significant),
    ):
        first, second = getattr(one, attribute), getattr(other, attribute)
        rows.append((name, _written(first, write), _written(second, write), first, second))
    rows.append(("runs on", _runs_on(one), _runs_on(other), None, None))
    return Table(
        (
            Column("", [row[0] for row in rows], right=False),
            Column("A", [row[1] for row in rows]),
            Column("B", [row[2] for row in rows]),
            Column("B to A", [_change(row[3], row[4]) for row in rows]),
        )
    )


def _runs_on(deployment: Deployment) -> str:
    return f"{deployment.where.device.id}, {replicas(deployment)}"


def _written(value: float | None, write: Any) -> str:
    return units.UNKNOWN if value is None else str(write(value))


def _change(one: float | None, other: float | None) -> str:
    if not one or other is None:
        return ""
    more = other / one - 1.0
    return words.signed(more) if abs(more) >= _SAME else "same"
