"""AIPerf `profile_export_aiperf.json` and GenAI-Perf `profile_export_genai_perf.json`.

Source: ai-dynamo/aiperf, aiperf/common/models/export_models.py and metrics/types. Every metric is
an object with its own `unit`. `inter_token_latency` is (latency - TTFT) / (tokens - 1), what vLLM
calls TPOT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.benchmark_files.serving import served
from roofcast.calibrate.benchmark_files.text import printable
from roofcast.hardware.errors import unknown

NAME = "AIPerf / GenAI-Perf"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_FOLDER = re.compile(r"concurrency[_-]?(\d{1,7})(?!\d)")
_DEEPEST = 5


def recognises(opening: Opening) -> bool:
    """The token metrics as objects with averages."""
    return opening.holds("output_token_throughput", "avg") and opening.holds(
        "request_throughput", "avg"
    )


def records(path: Path) -> Iterator[Record]:
    """A record for each export in the file."""
    for fields in each_object(path):
        yield _record(fields)


def _record(fields: Fields) -> Record:
    failed = fields.number(("error_request_count", "avg"))
    return served(
        Record(
            file=str(fields.path),
            where=fields.where,
            format=NAME,
            requested=_requested(fields),
            input_tokens=fields.quantity(("input_sequence_length", "avg")),
            output_tokens=fields.quantity(("output_sequence_length", "avg")),
            tpot_s=seconds(fields, "inter_token_latency"),
            ttft_s=seconds(fields, "time_to_first_token"),
            e2e_s=seconds(fields, "request_latency"),
            output_tokens_per_s=fields.quantity(("output_token_throughput", "avg")),
            tpot_sd_s=seconds(fields, "inter_token_latency", "std"),
            samples=fields.quantity(("request_count", "avg")),
            stated=_stated(fields),
            flags=("failed_requests",) if failed else (),
        ),
        rate=fields.quantity(("request_throughput", "avg")),
    )


def seconds(fields: Fields, metric: str, statistic: str = "avg") -> Quantity | None:
    """A statistic of a metric in the unit that stands beside it; UnknownNameError for another unit."""
    found = fields.quantity((metric, statistic), zero=statistic == "std")
    if found is None:
        return None
    unit = fields.text((metric, "unit")) or "ms"
    if unit.lower() not in _SECONDS:
        raise unknown(f"unit of {metric} in {printable(str(fields.path), 240)}", unit, _SECONDS)
    return Quantity(found.value * _SECONDS[unit.lower()], found.source)


def _requested(fields: Fields) -> Quantity | None:
    """Concurrency asked for: in `input_config`, or in the name of GenAI-Perf's artifact folder."""
    found = _find(fields.raw("input_config"), "concurrency", "input_config")
    if found is not None:
        return found
    match = _FOLDER.search(fields.path.resolve().parent.name)
    return Quantity(float(match[1]), "name of the folder") if match else None


def _find(tree: object, wanted: str, path: str, depth: int = 0) -> Quantity | None:
    """The first positive number under that key, wherever in the configuration it stands."""
    if not isinstance(tree, Mapping) or depth > _DEEPEST:
        return None
    value = tree.get(wanted)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return Quantity(float(value), f"{path}.{wanted}")
    for key, branch in tree.items():
        found = _find(branch, wanted, f"{path}.{printable(str(key))}", depth + 1)
        if found is not None:
            return found
    return None


def _stated(fields: Fields) -> Conditions:
    names = fields.raw(("input_config", "endpoint", "model_names"))
    named = names[0] if isinstance(names, list) and names else None
    return Conditions(model=printable(named) if isinstance(named, str) else None)


FORMAT = Format(NAME, "output_token_throughput.avg and request_throughput.avg", recognises, records)
