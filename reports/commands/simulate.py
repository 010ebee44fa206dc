"""`roofcast simulate`: requests served by continuous batching, one by one."""

from __future__ import annotations

import json as json_format
from pathlib import Path

from roofcast.calibrate.served_runs import (
    Agreement,
    agreements,
    count_agreements,
    read_counts,
    read_run,
)
from roofcast.hardware.profile_store import write_text
from roofcast.reports import options, output, serving_text, words
from roofcast.reports import simulate_options as given
from roofcast.reports.durations import seconds
from roofcast.simulator.scenario import Outcome, Scenario
from roofcast.simulator.scenario import simulate as serve
from roofcast.simulator.serving_stats import over_time

app = options.new_app()


@app.command()
def simulate(
    model: options.Model,
    *,
    device: options.Device = "auto",
    trace: given.Trace = None,
    rate: given.Rate = None,
    concurrency: given.Concurrency = None,
    arrivals: given.Arrivals = None,
    cv: given.Variation = None,
    requests: given.Count = None,
    prompt: given.Prompt = None,
    reply: given.Reply = None,
    hits: given.Hits = None,
    seed: given.Seed = None,
    token_budget: given.TokenBudget = None,
    max_sequences: given.MaxSequences = None,
    kv_tokens: given.KvTokens = None,
    block_tokens: given.BlockTokens = None,
    ttft_slo: given.TtftSlo = None,
    tpot_slo: given.TpotSlo = None,
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    tp: options.Tensor = 1,
    pp: options.Pipeline = 1,
    ep: options.Expert = 1,
    dp: options.Data = 1,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    out: given.Out = None,
    timeline: given.Timeline = None,
    chrome_trace: given.ChromeTrace = None,
    figure: given.Figure = None,
    against: given.Against = None,
    against_counts: given.AgainstCounts = None,
    json: options.Json = False,
) -> None:
    """Serve requests by continuous batching, as vLLM-like engines do, and report what users see.

    \b
    Examples:
      roofcast simulate llama-3.1-8b -d h100-sxm --rate 20 --input 1000,p95=3000
      roofcast simulate llama-3.1-8b -d l40s --trace trace.csv --out requests.csv --json
      roofcast simulate qwen3-32b -d h200-sxm --concurrency 64 --ttft-slo 2s --tpot-slo 40ms
    """
    scenario = Scenario(
        model=model,
        device=device,
        engine=engine,
        profile=profile,
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        trace=None if trace is None else str(trace),
        arrivals=arrivals,
        rate=rate,
        cv=cv,
        requests=requests,
        input=prompt,
        output=reply,
        hits=hits,
        concurrency=concurrency,
        seed=seed,
        token_budget=token_budget,
        max_sequences=max_sequences,
        block_tokens=block_tokens,
        kv_tokens=kv_tokens,
        ttft_slo_s=None if ttft_slo is None else seconds(ttft_slo, "--ttft-slo"),
        tpot_slo_s=None if tpot_slo is None else seconds(tpot_slo, "--tpot-slo"),
    )
    outcome = serve(scenario)
    compared = compare(outcome, against, against_counts)
    if json:
        document = serving_text.describe(outcome)
        if compared:
            document["against"] = serving_text.agreement_json(compared)
        output.emit_json(document)
    elif out != "-" and timeline != "-":
        _print(outcome, compared)
    write(outcome, out, timeline, chrome_trace)
    if figure is not None:
        _draw(outcome, figure, against_counts, against)


def compare(outcome: Outcome, against: Path | None, counts: Path | None) -> list[Agreement]:
    """How the simulation agrees with real files."""
    found: list[Agreement] = []
    if against is not None:
        found += agreements(outcome.served, read_run(against))
    if counts is not None:
        found += count_agreements(read_counts(counts), outcome.served)
    return found


def write(
    outcome: Outcome, out: str | None, timeline: str | None, chrome_trace: Path | None
) -> None:
    """The files that were asked for."""
    if out is not None:
        rows = serving_text.request_rows(outcome.served)
        output.write_csv(rows, out, serving_text.REQUEST_COLUMNS)
    if timeline is not None:
        rows = serving_text.window_rows(over_time(outcome.served))
        output.write_csv(rows, timeline, rows[0])
    if chrome_trace is not None:
        from roofcast.reports.chrome_trace import chrome_trace as document

        write_text(chrome_trace, json_format.dumps(document(outcome.served)))


def _print(outcome: Outcome, compared: list[Agreement]) -> None:
    where, policy = outcome.simulation.where, outcome.simulation.policy
    output.say(words.subject(where.decode(1, 1)))
    output.say(words.provenance(where.profile))
    for warning in where.profile.warnings:
        output.say(f"Note: {warning}")
    output.say(f"Serving {serving_text.traffic(outcome.served.requests)}.")
    output.say(f"Limits: {serving_text.limits(policy)}.")
    output.say()
    output.show(serving_text.latencies(outcome.summary))
    output.say()
    for sentence in serving_text.sentences(outcome.summary, outcome.scenario.objectives):
        output.say(sentence)
    if compared:
        output.say()
        output.show(serving_text.agreement(compared))


def _draw(outcome: Outcome, stem: Path, counts: Path | None, against: Path | None) -> None:
    from roofcast.reports.figures.serving_pages import serving_page

    drawn = serving_page(
        outcome,
        stem.with_suffix("") if stem.suffix else stem,
        None if counts is None else read_counts(counts),
        None if against is None else read_run(against),
    )
    output.note(f"wrote {', '.join(str(path) for path in drawn)}")
