"""`roofcast model`: what a model is made of, and what one step of it moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from roofcast.reports import options, output, units, words
from roofcast.reports.tables import Column, Table
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.cache import (
    cache_bytes,
    kv_bytes_per_token,
    kv_bytes_per_token_beyond_windows,
    state_bytes_per_sequence,
)
from roofcast.simulator.kv_pages import allocated_bytes
from roofcast.simulator.ledger import PartCount, parts
from roofcast.simulator.memory import rank_kinds
from roofcast.simulator.memory_policy import Launch, find_policy
from roofcast.simulator.models import bundled, load
from roofcast.simulator.operators import Pass, operators
from roofcast.simulator.quantization import requantise
from roofcast.simulator.workload import Workload

app = options.new_app()


@app.command()
def model(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="A bundled name, a config.json, a folder holding one, a GGUF file, or a Hub id; "
            "without one, the bundled models are listed.",
            show_default=False,
        ),
    ] = None,
    *,
    batch: Annotated[
        int | None,
        typer.Option("--batch", "-b", metavar="N", help="Add one decode step of this batch."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", "-c", metavar="N", help="Add one decode step at this context."),
    ] = None,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    json: options.Json = False,
) -> None:
    """Count a model: parameters, weight bytes, cache per token, layers by kind.

    \b
    Examples:
      roofcast model
      roofcast model llama-3.1-8b
      roofcast model ./my-model/config.json --weight-dtype fp8 --json
      roofcast model gpt-oss-120b --batch 64 --context 8192
    """
    if model is None:
        _list(json=json)
        return
    architecture = load(model)
    if weight_dtype is not None:
        architecture = requantise(architecture, weight_dtype)
    cache = kv_dtype or architecture.kv_dtype or architecture.dtype
    facts = count(architecture, kv_dtype or "bf16")
    if batch is not None or context is not None:
        asked = Workload.decode(batch or 1, 1024 if context is None else context)
        facts["step"] = step(Pass(architecture, asked, kv_dtype=cache))
        facts["sequence"] = sequence(Pass(architecture, asked, kv_dtype=cache))
    if json:
        output.emit_json(facts)
    else:
        _print(architecture, facts, cache)


def count(architecture: Architecture, kv_dtype: str) -> dict[str, Any]:
    """What `--json` prints; cache bytes are at `kv_dtype`."""
    return {
        "model": architecture.name,
        "family": architecture.family,
        "parameters": architecture.parameters,
        "active_parameters": round(architecture.active_parameters),
        "weight_bytes": architecture.weight_bytes,
        "kv_bytes_per_token": kv_bytes_per_token(architecture, kv_dtype),
        "kv_bytes_per_token_beyond_windows": kv_bytes_per_token_beyond_windows(
            architecture, kv_dtype
        ),
        "state_bytes_per_sequence": state_bytes_per_sequence(architecture, kv_dtype),
        "layers": dict(Counter(layer.kind for layer in architecture.layers)),
        "max_context": architecture.max_context,
        "weight_format": words.weight_format(architecture),
        "kv_dtype": kv_dtype,
        "checkpoint_kv_dtype": architecture.kv_dtype,
        "parts": [asdict(each) for each in parts(architecture)],
        "warnings": list(architecture.warnings),
    }


def sequence(work: Pass) -> dict[str, Any]:
    """Cache and state of one sequence: bytes a step needs, and bytes as vLLM's pages hold them."""
    paged = find_policy("vllm", Launch())
    tokens = work.workload.context
    return {
        "kv_dtype": work.kv_dtype,
        "cache_bytes": float(cache_bytes(work.architecture, tokens, work.kv_dtype)),
        "allocated_bytes": float(allocated_bytes(rank_kinds(work), tokens, paged)),
    }


def step(work: Pass) -> dict[str, float]:
    """FLOPs and bytes of one decode step, summed over its operators."""
    parts = operators(work)
    totals = {
        name: float(sum(getattr(part, name) for part in parts))
        for name in ("flops", "weight_bytes", "kv_read_bytes", "kv_write_bytes", "activation_bytes")
    }
    flops = totals.pop("flops")
    return {
        "batch": int(work.workload.batch),
        "context": int(work.workload.context),
        "flops": flops,
        "hbm_bytes": sum(totals.values()),
        **totals,
    }


def _list(*, json: bool) -> None:
    found = [load(name) for name in bundled()]
    if json:
        output.emit_json([count(each, each.kv_dtype or "bf16") for each in found])
        return
    output.show(
        Table(
            (
                Column("model", [each.name for each in found], right=False),
                Column("parameters", [units.count(each.parameters) for each in found]),
                Column("active", [units.count(each.active_parameters) for each in found], rank=2),
                Column("weights", [units.data(each.weight_bytes) for each in found]),
                Column("stored as", [words.weight_format(each) for each in found], False, 3),
                Column(
                    "cache per token",
                    [
                        units.data(kv_bytes_per_token(each, each.kv_dtype or "bf16"))
                        for each in found
                    ],
                    rank=1,
                ),
                Column("longest context", [_longest(each) for each in found], rank=4),
            )
        )
    )


def _longest(architecture: Architecture) -> str:
    limit = architecture.max_context
    return units.UNKNOWN if limit is None else f"{limit:,}"


def _print(architecture: Architecture, facts: dict[str, Any], cache: str) -> None:
    active = facts["active_parameters"]
    total = facts["parameters"]
    lines = [("family", facts["family"]), ("parameters", f"{units.count(total)} ({total:,})")]
    if active != total:
        lines.append(
            ("active per token", f"{units.count(active)} ({units.percent(active / total)})")
        )
    lines.append(("weights", f"{units.data(facts['weight_bytes'])}, {facts['weight_format']}"))
    lines += _cache_lines(facts)
    kinds = ", ".join(f"{number} {kind}" for kind, number in facts["layers"].items())
    lines.append(("layers", f"{len(architecture.layers)}: {kinds}"))
    if facts["max_context"]:
        lines.append(("longest context", f"{facts['max_context']:,} tokens"))
    output.say(facts["model"])
    output.show(pairs(lines))
    output.say()
    output.show(_parts_table(parts(architecture)))
    if "step" in facts:
        output.say()
        output.say(_step_words(facts["step"], cache))
        output.say(_sequence_words(facts["sequence"], facts["step"]["context"]))
    for warning in facts["warnings"]:
        output.say(f"Note: {warning}")


def _cache_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    appended = facts["kv_bytes_per_token"]
    beyond = facts["kv_bytes_per_token_beyond_windows"]
    lines = [("cache per token", f"{units.data(appended)}, {facts['kv_dtype']}")]
    if beyond != appended:
        lines.append(("once windows are full", f"{units.data(beyond)} per token"))
    if facts["state_bytes_per_sequence"]:
        lines.append(("state per sequence", units.data(facts["state_bytes_per_sequence"])))
    return lines


def _step_words(step: dict[str, float], cache: str) -> str:
    return (
        f"One step at batch {step['batch']:,}, context {step['context']:,} takes "
        f"{units.scaled(step['flops'], 'FLOP')} and moves {units.data(step['hbm_bytes'])}: "
        f"{units.data(step['weight_bytes'])} of weights, {units.data(step['kv_read_bytes'])} of cache "
        f"({cache}) read, {units.data(step['kv_write_bytes'])} written."
    )


def _sequence_words(held: dict[str, Any], context: int) -> str:
    return (
        f"A sequence of {context:,} tokens keeps {units.data(held['cache_bytes'])} "
        f"({held['kv_dtype']}); paged as vLLM does, it holds {units.data(held['allocated_bytes'])}."
    )


def _parts_table(counted: Sequence[PartCount]) -> Table:
    return Table(
        (
            Column("part", [each.part.replace("_", " ") for each in counted], right=False),
            Column("parameters", [units.count(each.parameters) for each in counted]),
            Column("held", [units.data(each.resident_bytes) for each in counted]),
            Column("read at batch 1", [units.data(each.read_bytes) for each in counted], rank=1),
            Column("stored as", [", ".join(each.formats) for each in counted], False, 2),
        )
    )


def pairs(lines: list[tuple[str, str]]) -> Table:
    """Names and values, side by side."""
    return Table(
        (
            Column("", [name for name, _ in lines], right=False),
            Column("", [value for _, value in lines], right=False),
        )
    )
