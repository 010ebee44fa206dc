"""`roofcast audit`: how far measured points are from what the hardware allows, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from roofcast.calibrate.audit.audit import Audited
from roofcast.calibrate.audit.audit import audit as audit_records
from roofcast.calibrate.audit.before_after import Gain, compare
from roofcast.calibrate.audit.changes import EXAMPLES, parse_change
from roofcast.calibrate.audit.judging import judge
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.reader import read_all
from roofcast.calibrate.benchmark_files.record import Record
from roofcast.hardware.errors import InputError
from roofcast.reports import audit_rows, audit_text, options, output, words

app = options.new_app()

_SHOWN, _EXPLAINED = 40, 8

Ranks = Annotated[int | None, typer.Option(metavar="N", min=1, show_default=False)]
Tokens = Annotated[
    float | None,
    typer.Option(metavar="N", min=0, help="For files that don't hold it.", show_default=False),
]


@app.command()
def audit(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT...", help="Result files of benchmarks.", show_default=False),
    ],
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="What ran.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", "-d", metavar="NAME", help="Where it ran.")
    ] = None,
    engine: options.Engine = None,
    profile: options.ProfileFile = None,
    tp: Ranks = None,
    pp: Ranks = None,
    ep: Ranks = None,
    dp: Ranks = None,
    weight_dtype: options.WeightDtype = None,
    kv_dtype: options.KvDtype = None,
    batch: Tokens = None,
    input_: Annotated[
        float | None, typer.Option("--input", metavar="N", min=0, show_default=False)
    ] = None,
    output_: Annotated[
        float | None, typer.Option("--output", metavar="N", min=1, show_default=False)
    ] = None,
    change: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help=f"Compare before and after a change: {', '.join(EXAMPLES)}.",
            show_default=False,
        ),
    ] = None,
    before: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A run before the change; repeat for repeats.", show_default=False
        ),
    ] = None,
    judge_flags: Annotated[
        bool, typer.Option("--judge", help="Judge the verdicts by the flags of a table of points.")
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw where the time went, or gains: FILE.png and .svg."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Audit benchmark results: floor, forecast, measurement, where the time went, suspects.

    Files of vLLM, SGLang, TensorRT-LLM, AIPerf, GuideLLM, InferenceX, llama.cpp and ollama are told
    by their content. What a file doesn't hold comes from options, or from NAME.conditions.toml beside
    it. With --change, RESULT is the run after; --before, or else the first RESULT, the one before.

    \b
    Examples:
      roofcast audit vllm.json -m llama-3.1-70b -d h100-sxm --tp 4
      roofcast audit before.json after.json --change kv=fp8 -m llama-3.1-8b -d h200-sxm
      roofcast audit sweep.jsonl -m llama-3.1-8b -d h100-sxm --profile ideal --figure audit
    """
    given = Conditions(
        model=model,
        device=device,
        engine=engine if engine != "ideal" else None,
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        batch=batch,
        input_tokens=input_,
        output_tokens=output_,
    )
    wanted = "ideal" if engine == "ideal" else profile
    if change is None:
        if before:
            raise InputError("--before needs --change: say what was changed")
        _audit(read_all(results), given, wanted, judge_flags, figure, json)
        return
    old, new = _sides(results, before or [])
    found = compare(old, new, parse_change(change), given, wanted)
    _compare(found, json)
    if figure is not None:
        from roofcast.reports.figures.audit_page import gains_page

        _wrote(gains_page(found, _stem(figure)))


def _sides(results: Sequence[Path], before: Sequence[Path]) -> tuple[Sequence[Record], ...]:
    """The records before and after."""
    if before:
        return read_all(before), read_all(results)
    if len(results) != 2:
        raise InputError(
            f"--change needs two results, before and after, not {len(results)}; "
            "or give the runs before with --before"
        )
    return read_all(results[:1]), read_all(results[1:])


def _audit(
    records: Sequence[Record],
    given: Conditions,
    profile: str | None,
    judged: bool,
    figure: Path | None,
    json: bool,
) -> None:
    found = audit_records(records, given, profile)
    if json:
        output.emit_json([audit_rows.row(each) for each in found])
    elif judged:
        _judge(found)
    else:
        _print(found)
    if figure is not None:
        from roofcast.reports.figures.audit_page import audit_page

        _wrote(audit_page(found, _stem(figure)))


def _stem(figure: Path) -> Path:
    return figure.with_suffix("") if figure.suffix else figure


def _wrote(paths: Sequence[Path]) -> None:
    output.note(f"wrote {', '.join(str(path) for path in paths)}")


def _judge(found: Sequence[Audited]) -> None:
    result = judge(found)
    for line in audit_text.judgement(result):
        output.say(line)
    output.say()
    output.show(audit_text.judged_flags(result), "widen the terminal")


def _print(found: Sequence[Audited]) -> None:
    for path in dict.fromkeys(each.record.file for each in found):
        _print_file([each for each in found if each.record.file == path])


def _print_file(found: Sequence[Audited]) -> None:
    first = found[0]
    output.say(f"{first.record.file}: {first.record.format}")
    if first.placed is not None and len({id(e.placed.setup) for e in found if e.placed}) == 1:
        where = first.placed.setup
        output.say(audit_text.subject(where))
        output.say(words.provenance(where.profile))
    for line in audit_text.assumptions(found):
        output.say(line)
    output.say(audit_text.batch_source(first))
    output.say()
    output.show(audit_text.points(audit_text.gravest(found, _SHOWN)))
    if len(found) > _SHOWN:
        output.say(f"(the {_SHOWN} gravest of {len(found):,} points: --json holds all)")
    output.say()
    if len(found) > _EXPLAINED:
        for line in audit_text.summary(found):
            output.say(line)
    else:
        for each in found:
            _explain(each, named=len(found) > 1)
    output.say()


def _explain(each: Audited, *, named: bool) -> None:
    lines = audit_text.explanation(each)
    if named and lines:
        output.say(f"{each.record.where or each.record.file}:")
    for line in lines:
        output.say(line)


def _compare(found: Sequence[Gain], json: bool) -> None:
    if json:
        output.emit_json([audit_rows.gain_row(each) for each in found])
        return
    output.show(audit_text.gains(found))
    output.say()
    for each in found:
        size = each.before.record.value("batch")
        name = f"Batch {size:,.0f}: " if size and len(found) > 1 else ""
        said = f"{name}{each.verdict}: {each.words}."
        output.say(said[:1].upper() + said[1:])
