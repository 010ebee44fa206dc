"""`roofcast plan`: which deployment serves a traffic within its objectives, at what cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.reports import options, output, plan_text
from roofcast.reports.durations import seconds
from roofcast.reports.plan_options import document
from roofcast.simulator.planning.plan import Plan
from roofcast.simulator.planning.plan import plan as search

app = options.new_app()


@app.command()
def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|SCENARIO.toml",
            help="A model, or a scenario kept earlier.",
            show_default=False,
        ),
    ],
    *,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device", "-d", metavar="NAME", help="A device to consider; repeatable, or a,b."
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="R", help="Requests per second.")] = None,
    users: Annotated[
        float | None, typer.Option(metavar="N", help="Requests in flight instead of a rate.")
    ] = None,
    input_tokens: Annotated[
        str | None, typer.Option("--input", metavar="TOKENS", help="Prompt length, see below.")
    ] = None,
    output_tokens: Annotated[
        str | None, typer.Option("--output", metavar="TOKENS", help="Reply length, see below.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="CSV", help="Rate and lengths from a trace instead.")
    ] = None,
    hits: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of prompt tokens found in a prefix cache."),
    ] = None,
    ttft: Annotated[
        str | None, typer.Option(metavar="TIME", help="Limit on the time to the first token: 1s.")
    ] = None,
    tpot: Annotated[
        str | None, typer.Option(metavar="TIME", help="Limit on the time per output token: 50ms.")
    ] = None,
    percentile: Annotated[
        float | None,
        typer.Option(metavar="P", help="Requests that the limits hold for, in per cent."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE=USD", help="Rent an hour, or a purchase: DEVICE=30000/4y."),
    ] = None,
    kwh: Annotated[
        float | None, typer.Option(metavar="USD", help="Electricity of bought devices, per kWh.")
    ] = None,
    tp: Annotated[
        str | None, typer.Option(metavar="LIST", help="Tensor-parallel sizes to try.")
    ] = None,
    pp: Annotated[str | None, typer.Option(metavar="LIST", help="Pipeline stages to try.")] = None,
    ep: Annotated[
        str | None, typer.Option(metavar="LIST", help="Expert-parallel sizes to try.")
    ] = None,
    dp: Annotated[str | None, typer.Option(metavar="LIST", help="Attention groups to try.")] = None,
    weight_dtype: Annotated[
        str | None,
        typer.Option(
            "--weight-dtype", "-w", metavar="LIST", help="Weight formats to try: checkpoint,fp8."
        ),
    ] = None,
    kv_dtype: Annotated[
        str | None,
        typer.Option(
            "--kv-dtype", "-k", metavar="LIST", help="Cache dtypes to try: checkpoint,fp8."
        ),
    ] = None,
    replica: Annotated[
        int | None, typer.Option(metavar="N", help="Most devices of one replica (8).")
    ] = None,
    network: Annotated[
        float | None,
        typer.Option(metavar="GB_PER_S", help="Network between nodes, per device and direction."),
    ] = None,
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    speculate: Annotated[
        int | None, typer.Option(metavar="K", help="Draft K tokens a step and verify them.")
    ] = None,
    acceptance: Annotated[
        float | None, typer.Option(metavar="A", help="Chance that a drafted token is accepted.")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(metavar="WHO", help="mtp, ngram, or a small model. Default: mtp.")
    ] = None,
    offload: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Routed experts kept in host memory.")
    ] = None,
    disaggregate: Annotated[
        bool, typer.Option("--disaggregate", help="Also try prompts on devices of their own.")
    ] = False,
    token_budget: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of one step (chunked prefill).")
    ] = None,
    rank: Annotated[
        Literal["cost", "throughput", "latency"] | None,
        typer.Option(help="What to rank by (cost)."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="List every deployment, not the best of each device.")
    ] = False,
    top: Annotated[int, typer.Option(metavar="N", help="Rows to print.")] = 12,
    keep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the question as a scenario file.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with another scenario file.")
    ] = None,
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
