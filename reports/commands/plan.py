"""`roofcast plan`: which deployment serves a traffic within its objectives, at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.reports import options, output, plan_text
from roofcast.reports import plan_options as asking
from roofcast.reports.durations import seconds
from roofcast.reports.plan_document import document
from roofcast.simulator.planning.plan import Plan
from roofcast.simulator.planning.plan import plan as search

app = options.new_app()


@app.command()
def plan(
    model: asking.ModelOrScenario,
    *,
    device: asking.Devices = None,
    rate: asking.Rate = None,
    users: asking.Users = None,
    input_tokens: asking.Prompt = None,
    output_tokens: asking.Reply = None,
    trace: asking.Trace = None,
    hits: asking.Hits = None,
    ttft: asking.Ttft = None,
    tpot: asking.Tpot = None,
    percentile: asking.Percentile = None,
    price: asking.Price = None,
    kwh: asking.Kwh = None,
    tp: asking.Tensor = None,
    pp: asking.Pipeline = None,
    ep: asking.Expert = None,
    dp: asking.Data = None,
    weight_dtype: asking.WeightDtypes = None,
    kv_dtype: asking.KvDtypes = None,
    replica: asking.Replica = None,
    network: asking.Network = None,
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    speculate: asking.Speculate = None,
    acceptance: asking.Acceptance = None,
    draft: asking.Draft = None,
    offload: asking.Offload = None,
    disaggregate: asking.Disaggregate = False,
    token_budget: asking.TokenBudget = None,
    rank: asking.Rank = None,
    every: asking.Every = False,
    top: asking.Top = 12,
    keep: asking.Keep = None,
    against: asking.Against = None,
    json: options.Json = False,
) -> None:
    """Search all deployments that meet the objectives; rank them, and count why others do not.

    TOKENS is 1000, or 200:4000 (uniform), or 1000,p95=3000 (log-normal). Options given beside a
    scenario file replace what it says.

    \b
    Examples:
      roofcast plan llama-3.1-70b -d h100-sxm,h200-sxm --rate 40 --input 1000 --output 300 --tpot 50ms
      roofcast plan llama-3.1-8b -d l40s --users 200 --input 500,p95=1500 --output 200 --ttft 1s
      roofcast plan chat.toml --against chat-fp8.toml
    """
    given: dict[str, Any] = {
        "devices": device,
        "rate": rate,
        "users": users,
        "input": input_tokens,
        "output": output_tokens,
        "trace": trace,
        "hits": hits,
        "percentile": percentile,
        "price": price,
        "kwh": kwh,
        "tp": tp,
        "pp": pp,
        "ep": ep,
        "dp": dp,
        "weight_dtype": weight_dtype,
        "kv_dtype": kv_dtype,
        "replica": replica,
        "network": network,
        "engine": engine,
        "profile": profile,
        "speculate": speculate,
        "acceptance": acceptance,
        "draft": draft,
        "offload": offload,
        "token_budget": token_budget,
        "rank": rank,
        "disaggregate": disaggregate or None,
        "ttft": None if ttft is None else seconds(ttft, "ttft"),
        "tpot": None if tpot is None else seconds(tpot, "tpot"),
    }
    if top < 1:
        raise InputError(f"--top must be at least 1, not {top}")
    found = _searched(model, given, keep)
    if against is not None:
        _compare(found, _searched(str(against), {}, None), json)
    elif json:
        output.emit_json(plan_text.describe(found, top))
    else:
        _print(found, top, every)


def _searched(model: str, given: dict[str, Any], keep: Path | None) -> Plan:
    """Read or build the scenario, keep it if asked, and search."""
    from roofcast.simulator.planning import scenario

    path = Path(model)
    is_file = path.suffix == ".toml"
    base = scenario.read(path).model_dump(exclude_defaults=True) if is_file else {"model": model}
    asked = scenario.checked(document(base, given))
    if keep is not None:
        output.keep(keep, scenario.to_toml(asked))
    found = search(scenario.asked(asked, path.parent if is_file else None))
    if not found.deployments:
        raise CapacityError(plan_text.unreachable(found))
    return found


def _print(found: Plan, top: int, every: bool) -> None:
    output.say(plan_text.question(found.asked))
    output.say(plan_text.tried(found))
    output.say()
    shown = (found.deployments if every else found.best_by_device())[:top]
    output.show(plan_text.table(found, shown))
    output.say()
    for sentence in plan_text.reasons(found, found.deployments[0]):
        output.say(sentence)
    for line in plan_text.left_out(found):
        output.say(line)


def _compare(one: Plan, other: Plan, json: bool) -> None:
    """The best of two plans beside each other."""
    if json:
        output.emit_json([plan_text.describe(each, 1) for each in (one, other)])
        return
    for name, each in (("A", one), ("B", other)):
        output.say(f"{name}: {plan_text.question(each.asked)}")
    output.say()
    output.show(plan_text.side_by_side(one.deployments[0], other.deployments[0]))
