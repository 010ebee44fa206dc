"""`roofcast techniques`: what each costs and brings for one set-up, and where it stops paying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer

from roofcast.hardware.errors import InputError
from roofcast.reports import options, output, units, words
from roofcast.reports.places import placed
from roofcast.reports.ranges import numbers
from roofcast.reports.tables import Column, Table
from roofcast.simulator import techniques as kinds
from roofcast.simulator.api import Setup, setup
from roofcast.simulator.layouts import expert_counts, require_servable
from roofcast.simulator.planning.speculation import MTP, NGRAM, Speculation
from roofcast.simulator.techniques import Effect, Prompts
from roofcast.simulator.workload import Array, Parallelism

app = options.new_app()


@app.command()
def techniques(
    model: options.Model,
    *,
    device: options.Device = "auto",
    batch: Annotated[
        str, typer.Option("--batch", "-b", metavar="LIST", help="Sequences decoded together.")
    ] = "1,8,64",
    context: Annotated[
        int, typer.Option("--context", "-c", metavar="N", help="Tokens cached per sequence.")
    ] = 4096,
    prompt: Annotated[int, typer.Option(metavar="N", help="Tokens of a prompt.")] = 2048,
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    tp: options.Tensor = 1,
    pp: options.Pipeline = 1,
    ep: options.Expert = 1,
    dp: options.Data = 1,
    network: options.Network = None,
    weights: Annotated[
        str, typer.Option("--weight-dtype", "-w", metavar="LIST", help="Weight formats to try.")
    ] = "fp8,int4",
    caches: Annotated[
        str, typer.Option("--kv-dtype", "-k", metavar="LIST", help="Cache dtypes to try.")
    ] = "fp8",
    speculate: Annotated[int, typer.Option(metavar="K", help="Tokens drafted a step.")] = 3,
    acceptance: Annotated[
        float, typer.Option(metavar="A", help="Chance that a drafted token is accepted.")
    ] = 0.7,
    draft: Annotated[
        str | None,
        typer.Option(metavar="WHO", help="mtp, ngram or a model. Default: mtp, or else ngram."),
    ] = None,
    hits: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of a prompt found in a prefix cache.")
    ] = 0.5,
    chunk: Annotated[int, typer.Option(metavar="N", help="Tokens of a chunk of a prompt.")] = 512,
    offload: Annotated[
        float, typer.Option(metavar="SHARE", help="Routed experts kept in host memory.")
    ] = 0.5,
    json: options.Json = False,
) -> None:
    """Compare techniques with the plain set-up: time per token, memory, break-even.

    \b
    Examples:
      roofcast techniques llama-3.1-70b -d h100-sxm --tp 4 --batch 1,16,64 --context 8192
      roofcast techniques deepseek-v3 -d h200-sxm --tp 8 --ep 8 --speculate 1 --acceptance 0.85
      roofcast techniques llama-3.1-8b -d rtx-4090 --draft llama-3.2-1b --hits 0.9
    """
    if not 0 <= hits < 1 or not 0 <= offload <= 1:
        raise InputError("--hits lies from 0 to below 1, --offload from 0 to 1")
    if prompt < 1 or chunk < 1:
        raise InputError("--prompt and --chunk are at least 1 token")
    batches = np.array(numbers(batch, "batch"), dtype=float)
    where = setup(
        model,
        placed(device, network),
        engine=engine,
        profile=profile,
        parallelism=Parallelism(tp, pp, ep, dp),
    )
    require_servable(where.architecture, where.parallelism)
    drafter = draft or (MTP if where.architecture.mtp else NGRAM)
    made = [kinds.stored(where, batches, context, name) for name in _names(weights)]
    made += [kinds.cached(where, batches, context, name) for name in _names(caches)]
    drafts = Speculation(speculate, acceptance, drafter)
    made.append(kinds.drafted(where, batches, context, drafts))
    if expert_counts(where.architecture) and offload:
        made.append(kinds.offloaded(where, batches, context, offload))
    found = kinds.prompts(where, int(batches[-1]), context, prompt, hits, chunk)
    if json:
        output.emit_json(describe(made, batches, found))
    else:
        _print(where, made, batches, context, found, hits)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def describe(made: Sequence[Effect], batches: Array, found: Prompts) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "batches": [int(each) for each in batches],
        "techniques": [
            {
                "name": each.name,
                "time_per_token_s": [float(value) for value in each.token_s],
                "ratio": [float(value) for value in each.ratio],
                "pays": [bool(value) for value in each.pays],
                "memory_bytes": each.memory_bytes,
                "sequences_before": each.sequences[0],
                "sequences_after": each.sequences[1],
                "note": each.note,
            }
            for each in made
        ],
        "prompts": {
            "alone_s": found.alone_s,
            "with_prefix_hits_s": found.hit_s,
            "step_with_whole_prompt_s": found.stall_s,
            "step_with_chunk_s": found.chunk_s,
            "chunk_tokens": found.chunk,
            "chunks": found.passes,
            "kv_transfer_s": found.transfer_s,
        },
    }


def _print(
    where: Setup,
    made: Sequence[Effect],
    batches: Array,
    context: int,
    found: Prompts,
    hits: float,
) -> None:
    step = where.decode(batches, context)
    output.say(words.subject(step))
    output.say(words.provenance(where.profile))
    output.say()
    output.show(table(made, batches, step.step_time_s))
    output.say()
    for sentence in about_prompts(found, int(batches[-1]), hits):
        output.say(sentence)


def table(made: Sequence[Effect], batches: Array, plain: Array) -> Table:
    """A row a technique: time per token at each batch, memory, what fits, how far it pays."""
    rows = ["plain", *(each.name for each in made)]
    columns = [Column("per token", rows, right=False)]
    for index, batch in enumerate(batches):
        cells = [units.seconds(float(plain[index]))]
        cells += [f"{words.signed(float(each.ratio[index]) - 1.0)}" for each in made]
        columns.append(Column(f"batch {batch:,.0f}", cells))
    memory = ["", *(_change(each.memory_bytes) for each in made)]
    most = [f"{made[0].sequences[0]:,}", *(f"{each.sequences[1]:,}" for each in made)]
    pays = ["", *(_pays(each, batches) for each in made)]
    return Table(
        (
            *columns,
            Column("memory", memory, rank=2),
            Column("fit at once", most, rank=1),
            Column("pays", pays, right=False, rank=1),
            Column("", ["", *(each.note for each in made)], right=False, rank=3),
        )
    )


def _change(size: float) -> str:
    if not size:
        return ""
    return f"{'+' if size > 0 else '−'}{units.data(abs(size))}"


def _pays(each: Effect, batches: Array) -> str:
    """Where a technique saves time, as a range of the batches shown.

    >>> from numpy import array
    >>> _pays(Effect("", array([1, 1]), array([1.1, 0.9]), 0, (1, 1), ""), array([1, 8]))
    'from 8'
    """
    paying = each.pays
    if np.all(paying):
        return "always"
    if not np.any(paying):
        return "never"
    at = [f"{size:,.0f}" for size in batches[paying]]
    changes = int(np.sum(paying[1:] != paying[:-1]))
    if changes == 1:
        return f"up to {at[-1]}" if paying[0] else f"from {at[0]}"
    return f"at {', '.join(at)}"


def about_prompts(found: Prompts, batch: int, hits: float) -> list[str]:
    """Prefix caching, chunked prefill and disaggregation in sentences."""
    chunked = (
        f"Beside {batch:,} decoding sequences a step that reads the whole prompt lasts "
        f"{units.seconds(found.stall_s)}"
    )
    if found.passes > 1:
        chunked += (
            f"; in {found.passes} chunks of {found.chunk:,} tokens each step lasts "
            f"{units.seconds(found.chunk_s)}, and the prompt takes "
            f"{units.seconds(found.passes * found.chunk_s)}"
        )
    return [
        f"Prefix caching: a prompt takes {units.seconds(found.alone_s)} alone, "
        f"{units.seconds(found.hit_s)} with {units.percent(hits)} of it cached.",
        f"Chunked prefill: {chunked[0].lower()}{chunked[1:]}.",
        f"Disaggregation: its cache reaches another device in {units.seconds(found.transfer_s)}; it "
        f"pays where decode steps must stay shorter than {units.seconds(found.chunk_s)}.",
    ]
