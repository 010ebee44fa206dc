"""llama-batched-bench: `--output-format jsonl`, and the table it prints.

Source: ggml-org/llama.cpp, tools/batched-bench/batched-bench.cpp. `pl` sequences decode `tg` tokens
each after prompts of `pp`: `t_tg / tg` is one step, in seconds. `speed` counts prompt tokens and is
not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.benchmark_files.tables import markdown_rows, text_lines

NAME = "llama-batched-bench"
_COLUMNS = {
    "PP": "pp",
    "TG": "tg",
    "B": "pl",
    "T_PP s": "t_pp",
    "T_TG s": "t_tg",
    "S_TG t/s": "speed_tg",
}


def recognises(opening: Opening) -> bool:
    """Lengths, sequences and times as JSON, or its table."""
    if opening.has("pp", "tg", "pl", "t_tg"):
        return True
    return opening.first is None and any(
        line.startswith("|") and "S_TG t/s" in line and " B " in line
        for line in opening.text.splitlines()
    )


def records(path: Path) -> Iterator[Record]:
    """A record for each row that generates tokens."""
    for fields in _rows(path):
        if fields.number("tg") and fields.number("t_tg"):
            yield _record(fields)


def _rows(path: Path) -> Iterator[Fields]:
    first = next(text_lines(path), (0, ""))[1].lstrip()
    if first.startswith(("[", "{")):
        yield from each_object(path)
        return
    for number, cells in markdown_rows(text_lines(path), tuple(_COLUMNS)):
        row = {name: cells[column] for column, name in _COLUMNS.items()}
        yield Fields(path, f"line {number}", row, textual=True)


def _record(fields: Fields) -> Record:
    made, total = fields.number("tg"), fields.number("t_tg")
    assert made is not None, "only rows that generate get here"
    assert total is not None, "only rows that generate get here"
    return Record(
        file=str(fields.path),
        where=fields.where,
        format=NAME,
        batch=fields.quantity("pl"),
        batch_kind="static",
        input_tokens=fields.quantity("pp"),
        output_tokens=Quantity(made, "tg"),
        tpot_s=Quantity(total / made, "t_tg / tg"),
        ttft_s=fields.quantity("t_pp"),
        output_tokens_per_s=fields.quantity("speed_tg"),
        stated=Conditions(engine="llama.cpp"),
    )


FORMAT = Format(NAME, "pp, tg, pl and t_tg, or a table with `S_TG t/s`", recognises, records)
