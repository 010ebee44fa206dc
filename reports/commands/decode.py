"""`roofcast decode`: one reply from first token to last."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from roofcast.reports import options, output, units, words
from roofcast.reports.tables import Column, Table
from roofcast.simulator.api import setup
from roofcast.simulator.trajectory import Trajectory
from roofcast.simulator.trajectory import decode as forecast_reply
from roofcast.simulator.workload import Parallelism

app = options.new_app()

_ROWS = 9


@app.command()
def decode(
    model: options.Model,
    *,
    device: options.Device = "auto",
    prompt: Annotated[int, typer.Option(metavar="N", help="Tokens of the prompt.")] = 1000,
    tokens: Annotated[
        int, typer.Option("--output", "-o", metavar="N", help="Tokens of the reply.")
    ] = 1000,
    batch: Annotated[
        int, typer.Option("--batch", "-b", metavar="N", help="Equal replies decoded together.")
    ] = 1,
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    tp: options.Tensor = 1,
    pp: options.Pipeline = 1,
    ep: options.Expert = 1,
    dp: options.Data = 1,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the reply as FILE.png and FILE.svg."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Forecast one reply: prefill in one pass, then one step per further token.

    Each step reads all weights and the whole cache, which the last token has made longer.

    \b
    Examples:
      roofcast decode llama-3.1-8b -d h100-sxm --prompt 1000 --output 1000 --batch 8
      roofcast decode llama-3.1-70b -d h200-sxm --tp 2 --figure reply
    """
    where = setup(
        model,
        device,
        engine=engine,
        profile=profile,
        parallelism=Parallelism(tp, pp, ep, dp),
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
    )
    reply = forecast_reply(where, prompt, tokens, batch)
    if json:
        output.emit_json(describe(reply))
    else:
        _print(reply)
    if figure is not None:
        from roofcast.reports.figures.pages import reply_page

        drawn = reply_page(reply, figure.with_suffix("") if figure.suffix else figure)
        output.note(f"wrote {', '.join(str(path) for path in drawn)}")


def describe(reply: Trajectory) -> dict[str, Any]:
    """What `--json` prints."""
    steps = reply.steps
    spent = reply.decode_causes_s
    decoding = sum(spent.values())
    return {
        "device": steps.device.id,
        "engine": steps.profile.engine,
        "profile": steps.profile.name,
        "model": steps.work.architecture.name,
        "devices": steps.devices,
        "batch": int(steps.batch),
        "prompt": int(reply.prefill.work.workload.new),
        "output_tokens": reply.output_tokens,
        "ttft_s": reply.ttft_s,
        "tpot_s": reply.tpot_s,
        "total_s": reply.total_s,
        "tokens_per_s": reply.tokens_per_s,
        "decode_s": decoding,
        "decode_shares": {
            cause: time / decoding if decoding else 0.0 for cause, time in spent.items()
        },
        "itl_s": reply.itl_s.tolist(),
        "fits": _fits(reply),
    }


def _fits(reply: Trajectory) -> bool:
    last = reply.steps if reply.itl_s.size else reply.prefill
    return bool(np.all(last.memory.fits))


def _print(reply: Trajectory) -> None:
    output.say(words.subject(reply.prefill))
    output.say(words.provenance(reply.steps.profile))
    output.say(words.trust(reply.steps.profile))
    output.say()
    batch, prompt = int(reply.prefill.batch), int(reply.prefill.work.workload.new)
    read = f"{prompt:,}" if batch == 1 else f"{batch:,} x {prompt:,}"
    output.say(
        f"First token after {units.seconds(reply.ttft_s)} (prefill of {read} tokens in one pass, "
        f"{words.why(reply.prefill, 0)})."
    )
    if reply.itl_s.size:
        _print_steps(reply)
    output.say(
        f"The last of {reply.output_tokens:,} tokens after {units.seconds(reply.total_s)}: "
        f"{units.significant(reply.tokens_per_s)} tok/s"
        + (f" for the batch of {batch:,}." if batch > 1 else ".")
    )
    if not _fits(reply):
        output.say("This does not fit in memory: use more devices, a smaller batch or dtype.")
    beyond = words.extrapolation(reply.steps) if reply.itl_s.size else ""
    if beyond:
        output.say(beyond)


def _print_steps(reply: Trajectory) -> None:
    spent = reply.decode_causes_s
    decoding = sum(spent.values())
    shares = words.split({cause: time / decoding for cause, time in spent.items()})
    output.say(f"Then {units.seconds(reply.tpot_s)} a token on average: {shares}.")
    output.say()
    output.show(steps_table(reply))
    output.say()


def steps_table(reply: Trajectory) -> Table:
    """A few steps from first to last: how the latency grows with the cache."""
    chosen = np.unique(np.linspace(0, reply.itl_s.size - 1, _ROWS).round().astype(int))
    contexts = np.broadcast_to(reply.steps.context, reply.itl_s.shape)
    elapsed = reply.ttft_s + np.cumsum(reply.itl_s)
    return Table(
        (
            Column("token", [f"{index + 2:,}" for index in chosen]),
            Column("cache", [f"{contexts[index]:,.0f}" for index in chosen]),
            Column("step", [units.seconds(reply.itl_s[index]) for index in chosen]),
            Column("since start", [units.seconds(elapsed[index]) for index in chosen]),
            Column("bound", [str(reply.steps.bound[index]) for index in chosen], right=False),
        )
    )
