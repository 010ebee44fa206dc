"""`roofcast memory`: what a rank holds, line by line, and how much fits beside the weights."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from roofcast.hardware.errors import bad_file
from roofcast.reports import options, output, units, words
from roofcast.reports.places import placed
from roofcast.reports.tables import Column, Table
from roofcast.simulator import startup_log
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.capacity import Capacity, batch_capacity, context_capacity
from roofcast.simulator.layouts import complaint
from roofcast.simulator.memory import Memory
from roofcast.simulator.memory_policy import Launch
from roofcast.simulator.workload import Parallelism

app = options.new_app()


@app.command()
def memory(
    model: options.Model,
    *,
    device: options.Device = "auto",
    batch: Annotated[
        int, typer.Option("--batch", "-b", metavar="N", help="Sequences at once.")
    ] = 1,
    context: Annotated[
        int, typer.Option("--context", "-c", metavar="N", help="Tokens cached per sequence.")
    ] = 8192,
    engine: Annotated[
        str, typer.Option("--engine", "-e", metavar="NAME", help="Whose memory policy applies.")
    ] = "vllm",
    tp: options.Tensor = 1,
    pp: options.Pipeline = 1,
    ep: options.Expert = 1,
    dp: options.Data = 1,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    network: options.Network = None,
    utilisation: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of the memory that the engine plans with."),
    ] = None,
    token_budget: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of one step (max_num_batched_tokens).")
    ] = None,
    max_sequences: Annotated[
        int | None, typer.Option(metavar="N", help="Sequences at once (max_num_seqs).")
    ] = None,
    block: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of a page of the cache.")
    ] = None,
    windows: Annotated[
        Literal["ring", "pages", "full"] | None,
        typer.Option(metavar="HOW", help="What layers with a window keep: ring, pages or full."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A vLLM start-up log whose lines replace assumed ones; -."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Itemise the memory of the fullest rank: computed, measured or assumed, and why.

    \b
    Examples:
      roofcast memory llama-3.1-8b -d rtx-4090 --token-budget 2048
      roofcast memory llama-3.1-70b -d h100-sxm --tp 4 --batch 64 --context 8192
      docker logs vllm 2>&1 | roofcast memory llama-3.1-8b -d a100-sxm-80gb --log -
    """
    launch = Launch(utilisation, token_budget, max_sequences, block, windows)
    if log is not None:
        launch = startup_log.read(_read(log)).applied(launch)
    where = replace(
        setup(
            model,
            placed(device, network),
            profile="ideal",
            parallelism=Parallelism(tp, pp, ep, dp),
            weight_dtype=weight_dtype,
            kv_dtype=kv_dtype,
        ),
        launch=launch,
        kernels=engine,
    )
    ledger = where.decode(batch, context).memory
    found = batch_capacity(where, context), context_capacity(where, batch)
    if json:
        output.emit_json(describe(where, ledger, batch, context, *found))
    else:
        _print(where, ledger, batch, context, *found)


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise bad_file(path, error.strerror or str(error)) from None


def describe(
    where: Setup, ledger: Memory, batch: int, context: int, most: Capacity, longest: Capacity
) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "device": where.device.id,
        "model": where.architecture.name,
        "engine": ledger.policy.engine,
        "devices": where.parallelism.devices,
        "batch": batch,
        "context": context,
        "lines": [
            {
                "name": line.name,
                "bytes": float(np.max(line.bytes)),
                "origin": line.origin,
                "inside_share": line.inside,
                "reason": line.reason,
                "source": line.source,
            }
            for line in ledger.lines
        ],
        "total_bytes": float(np.max(ledger.total_bytes)),
        "usable_bytes": float(np.max(ledger.usable_bytes)),
        "capacity_bytes": ledger.capacity_bytes,
        "cache_room_bytes": float(np.max(ledger.cache_room_bytes)),
        "fits": bool(np.all(ledger.fits)),
        "largest_batch": most.most,
        "largest_batch_binds": most.binds,
        "longest_context": longest.most,
        "longest_context_binds": longest.binds,
    }


def _print(
    where: Setup, ledger: Memory, batch: int, context: int, most: Capacity, longest: Capacity
) -> None:
    spread = words.layout(where.parallelism)
    stored = f"{words.weight_format(where.architecture)} weights, {where.kv_dtype} cache"
    output.say(f"{where.architecture.name} on {where.device}, {spread}, {stored}")
    output.say(
        f"The fullest rank under {ledger.policy.engine} at batch {batch:,}, context {context:,}, "
        f"{ledger.policy.token_budget:,} tokens a step:"
    )
    problem = complaint(where.architecture, where.parallelism)
    if problem:
        output.say(f"Note: {problem}.")
    output.say()
    output.show(table(ledger))
    output.say()
    for sentence in verdict(ledger, batch, context, most, longest):
        output.say(sentence)
    assumed = [line for line in ledger.lines if line.source and np.any(line.bytes)]
    if assumed:
        output.say()
        output.say("Assumed lines, until a start-up log replaces them (--log):")
    for line in assumed:
        output.say(f"  {line.name}: {line.source}")


def table(ledger: Memory) -> Table:
    """One row a line that holds anything."""
    lines = [line for line in ledger.lines if np.any(line.bytes)]
    return Table(
        (
            Column("line", [line.name for line in lines], right=False),
            Column("bytes", [units.data(float(np.max(line.bytes))) for line in lines]),
            Column("", [line.origin for line in lines], right=False, rank=1),
            Column("why", [line.reason for line in lines], right=False, rank=2),
        )
    )


def verdict(
    ledger: Memory, batch: int, context: int, most: Capacity, longest: Capacity
) -> list[str]:
    """Whether it fits, and how much more would."""
    used, usable = float(np.max(ledger.inside_bytes)), float(np.max(ledger.usable_bytes))
    policy = ledger.policy
    of = "what the rest leaves" if policy.of == "remaining" else units.data(ledger.capacity_bytes)
    share = f"{units.percent(policy.share)} of {of}"
    fits = "fits" if bool(np.all(ledger.fits)) else "does NOT fit"
    return [
        f"{units.data(used)} of the usable {units.data(usable)} ({share}): it {fits}.",
        f"At context {context:,} {words.about(most.most)} sequences fit at once; {most.binds} binds.",
        f"At batch {batch:,} contexts of up to {longest.most:,} tokens fit; {longest.binds} binds.",
    ]
