"""llama-bench: `-o json`, `-o jsonl`, `-o csv` and the markdown table it prints.

Source: ggml-org/llama.cpp, tools/llama-bench/README.md. Always one sequence: `n_batch` and
`n_ubatch` are chunks of prefill. A tg row generates `n_gen` tokens after `n_depth` cached ones,
sampling and tokenisation left out; a pp row reads a prompt and says nothing of decode; a pp+tg row
times both together. In markdown the depth stands in the label only (`tg128 @ d16384`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.benchmark_files.tables import markdown_rows, text_lines
from roofcast.calibrate.benchmark_files.text import unusable

NAME = "llama-bench"
_LABEL = re.compile(r"(?:pp(?P<pp>\d+))?\+?(?:tg(?P<tg>\d+))?(?:\s*@\s*d(?P<depth>\d+))?$")
_RATE = re.compile(r"\s*(?P<mean>[\d.]+)(?:\s*(?:±|\+/-|\+-|�)\s*(?P<sd>[\d.]+))?\s*$")
_MIX = re.compile(r"\bI?Q\d\w*(?: - (?:Small|Medium|Large))?|\b(?:BF16|F16|F32|MXFP4)\b", re.I)
_SIZES = {"small": "s", "medium": "m", "large": "l"}


def recognises(opening: Opening) -> bool:
    """Counts with times as JSON or CSV, or a table with a `test` and a `t/s` column."""
    if opening.has("n_prompt", "n_gen") and (opening.has("avg_ns") or opening.has("avg_ts")):
        return True
    if opening.first is not None:
        return False
    return _is_csv(opening.text) or bool(_table(opening.text.splitlines()))


def records(path: Path) -> Iterator[Record]:
    """A record for each row that generates tokens; FileFormatError where all rows read prompts."""
    found = prompts = 0
    for fields in _rows(path):
        if fields.number("n_gen"):
            found += 1
            yield _record(fields)
        else:
            prompts += 1
    if not found:
        raise unusable(
            path, f"holds {prompts} rows that read prompts (pp) and none that generates (tg)"
        )


def _rows(path: Path) -> Iterator[Fields]:
    first = next(text_lines(path), (0, ""))[1].lstrip()
    if first.startswith(("[", "{")):
        yield from each_object(path)
    elif _is_csv(first):
        lines = (line for _, line in text_lines(path))
        for index, row in enumerate(csv.DictReader(lines), start=2):
            yield Fields(path, f"line {index}", row, textual=True)
    else:
        for number, cells in markdown_rows(text_lines(path), ("test", "t/s")):
            yield _from_table(path, f"line {number}", cells)


def _is_csv(text: str) -> bool:
    head = text.partition("\n")[0]
    return all(name in head for name in ("n_prompt", "n_gen", "avg_ts"))


def _table(lines: list[str]) -> bool:
    return any(line.startswith("|") and " test " in line and " t/s " in line for line in lines)


def _from_table(path: Path, where: str, cells: Mapping[str, str]) -> Fields:
    """A markdown row under the names that JSON has."""
    label = _LABEL.fullmatch(cells["test"].strip())
    rate = _RATE.fullmatch(cells["t/s"])
    if label is None or rate is None or not (label["pp"] or label["tg"]):
        raise unusable(
            path, "expected a row such as `| ... | tg128 @ d4096 | 105.00 ± 0.40 |`", where
        )
    row = {
        "n_prompt": label["pp"] or "0",
        "n_gen": label["tg"] or "0",
        "n_depth": label["depth"] or "0",
        "avg_ts": rate["mean"],
        "stddev_ts": rate["sd"] or "",
        "model_type": cells.get("model", "").strip(),
        "type_k": cells.get("type_k", "").strip(),
    }
    return Fields(path, where, row, textual=True)


def _record(fields: Fields) -> Record:
    made, asked = fields.number("n_gen"), fields.number("n_prompt", zero=True) or 0.0
    assert made is not None, "only rows that generate get here"
    depth = fields.number("n_depth", zero=True) or 0.0
    together = asked > 0  # pp+tg rows: one time for both
    step, spread = _step(fields, made)
    total = fields.quantity("avg_ns", scale=1e-9)
    return Record(
        file=str(fields.path),
        where=fields.where,
        format=NAME,
        batch=Quantity(1.0, "llama-bench decodes one sequence"),
        batch_kind="single",
        input_tokens=Quantity(depth + asked, "n_depth + n_prompt" if together else "n_depth"),
        output_tokens=Quantity(made, "n_gen"),
        tpot_s=None if together else step,
        e2e_s=total if together else None,
        output_tokens_per_s=None if together else fields.quantity("avg_ts"),
        tpot_sd_s=None if together else spread,
        samples=_samples(fields),
        stated=_stated(fields),
        flags=("prompt_in_time",) if together else (),
    )


def _step(fields: Fields, made: float) -> tuple[Quantity | None, Quantity | None]:
    """Seconds a token and their spread: from the time where there is one, else from the rate."""
    total = fields.quantity("avg_ns", scale=1e-9)
    rate, rate_sd = fields.quantity("avg_ts"), fields.quantity("stddev_ts", zero=True)
    step = Quantity(total.value / made, "avg_ns / n_gen") if total else None
    if step is None and rate is not None:
        step = Quantity(1.0 / rate.value, "1 / avg_ts")
    spread = None
    if step is not None and rate is not None and rate_sd is not None:
        spread = Quantity(step.value * rate_sd.value / rate.value, "stddev_ts")
    return step, spread


def _samples(fields: Fields) -> Quantity | None:
    found = fields.raw("samples_ns")
    return Quantity(float(len(found)), "samples_ns") if isinstance(found, list) and found else None


def _stated(fields: Fields) -> Conditions:
    mix = _MIX.search(fields.text("model_type") or "")
    return Conditions(
        model=fields.text("model_type", "model_filename"),
        device=fields.text("gpu_info"),
        engine="llama.cpp",
        weight_dtype=_format(mix[0]) if mix else None,
        kv_dtype=fields.text("type_k") or None,
    )


def _format(words: str) -> str:
    """A quantisation as llama-bench writes it, as GGUF files name it.

    >>> _format("Q4_K - Medium"), _format("F16")
    ('q4_k_m', 'f16')
    """
    name, _, size = words.lower().partition(" - ")
    return f"{name}_{_SIZES[size]}" if size else name


FORMAT = Format(
    NAME, "n_prompt, n_gen and avg_ts, or a table with `test` and `t/s`", recognises, records
)
