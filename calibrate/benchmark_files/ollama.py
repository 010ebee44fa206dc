"""ollama: the last object of an API reply, and what `ollama run --verbose` prints.

Source: ollama/ollama, docs/api.md and Metrics.Summary in api/types.go. One sequence. The API counts
ns, the text Go durations (1m2.5s, 190ms, 12µs). `prompt_eval_count` is missing where the whole
prompt was found in the cache of an earlier request. The time to load the model is no part of TTFT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.benchmark_files.tables import text_lines
from roofcast.calibrate.benchmark_files.text import unusable

NAME = "ollama"
_LINE = re.compile(
    r"\s*(?P<name>(?:prompt eval|eval|total|load) (?:count|duration|rate)):\s+(?P<value>\S.*?)\s*$"
)
_PART = re.compile(r"([\d.]+)(h|ms|m|µs|μs|us|ns|s)")
_UNIT_S = {
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
}


def recognises(opening: Opening) -> bool:
    """`eval_count` with its duration, a stream of replies with `done`, or the lines of --verbose."""
    if opening.has("eval_count", "eval_duration") or opening.has("model", "created_at", "done"):
        return True
    return opening.first is None and re.search(r"^eval duration:", opening.text, re.M) is not None


def records(path: Path) -> Iterator[Record]:
    """A record for each reply that ended."""
    rows = _from_api(path) if _is_json(path) else _from_text(path)
    count = 0
    for fields in rows:
        count += 1
        yield _record(fields)
    if not count:
        raise unusable(path, "no reply of ollama ends in it (done: true, with eval_count)")


def _is_json(path: Path) -> bool:
    return next(text_lines(path), (0, ""))[1].lstrip().startswith(("{", "["))


def _from_api(path: Path) -> Iterator[Fields]:
    for fields in each_object(path):
        if fields.raw("eval_count") is not None:
            yield fields


def _from_text(path: Path) -> Iterator[Fields]:
    """A group of lines ends at the line that gives the rate."""
    row: dict[str, object] = {}
    for number, line in text_lines(path):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        name, value = match["name"].replace(" ", "_"), match["value"]
        if name.endswith("duration"):
            row[name] = _nanoseconds(path, number, value)
        elif name.endswith("count"):
            row[name] = float(re.split(r"\D", value)[0] or 0)
        if name == "eval_rate":
            yield Fields(path, f"line {number}", row)
            row = {}


def _nanoseconds(path: Path, number: int, text: str) -> float:
    """A Go duration in ns."""
    parts = _PART.findall(text)
    if not parts or "".join(a + b for a, b in parts) != text:
        raise unusable(
            path, f"expected a duration such as 1m2.5s, got {text[:40]!r}", f"line {number}"
        )
    try:
        return sum(float(amount) * _UNIT_S[unit] for amount, unit in parts) * 1e9
    except ValueError:
        raise unusable(path, f"expected a duration, got {text[:40]!r}", f"line {number}") from None


def _record(fields: Fields) -> Record:
    made, spent = fields.quantity("eval_count"), fields.quantity("eval_duration", scale=1e-9)
    known = made is not None and spent is not None
    prompt = fields.quantity("prompt_eval_count")
    return Record(
        file=str(fields.path),
        where=fields.where,
        format=NAME,
        batch=Quantity(1.0, "one reply"),
        batch_kind="single",
        input_tokens=prompt,
        output_tokens=made,
        tpot_s=_over(spent, made) if known else None,
        ttft_s=fields.quantity("prompt_eval_duration", scale=1e-9),
        output_tokens_per_s=_over(made, spent) if known else None,
        stated=Conditions(model=fields.text("model"), engine="llama.cpp"),
        flags=() if prompt is not None else ("prompt_cached",),
    )


def _over(top: Quantity | None, bottom: Quantity | None) -> Quantity | None:
    if top is None or bottom is None:
        return None
    return Quantity(top.value / bottom.value, f"{top.source} / {bottom.source}")


FORMAT = Format(NAME, "eval_count and eval_duration, or lines of --verbose", recognises, records)
