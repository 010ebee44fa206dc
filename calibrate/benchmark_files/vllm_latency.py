"""vLLM `bench latency --output-json`, and the PyTorch-benchmark file it writes beside it.

Source: vllm/benchmarks/latency.py and vllm/benchmarks/lib/utils.py. The time is that of a whole
static batch, prefill included. The plain file holds neither batch nor lengths; X.pytorch.json
beside X.json does (SAVE_TO_PYTORCH_BENCHMARK_FORMAT), else they are asked for. Times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record

NAME = "vLLM bench latency"
_ARGUMENTS = ("benchmark", "extra_info", "args")


def recognises(opening: Opening) -> bool:
    """`avg_latency` with `latencies`, or the sidecar's arguments."""
    return opening.has("avg_latency", "latencies") or opening.holds(*_ARGUMENTS, "batch_size")


def records(path: Path) -> Iterator[Record]:
    """A record for each batch in the file."""
    beside = _sidecar(path)
    for fields in each_object(path):
        yield _record(fields, fields if fields.raw(_ARGUMENTS) else beside)


def _sidecar(path: Path) -> Fields | None:
    """The arguments written beside a plain file, where there is one run in it."""
    if path.name.endswith(".pytorch.json"):
        return None
    beside = path.with_name(f"{path.stem}.pytorch.json")
    found = list(each_object(beside)) if beside.is_file() else []
    runs = [fields for fields in found if fields.raw(_ARGUMENTS)]
    return runs[0] if len(runs) == 1 else None


def _record(fields: Fields, arguments: Fields | None) -> Record:
    latency = fields.quantity("avg_latency", ("metric", "extra_info", "avg_latency")) or _mean(
        fields
    )
    batch, prompt, output = (
        arguments.quantity((*_ARGUMENTS, name)) if arguments else None
        for name in ("batch_size", "input_len", "output_len")
    )
    rate = None
    if batch and output and latency:
        words = f"{batch.source} x {output.source} / {latency.source}"
        rate = Quantity(batch.value * output.value / latency.value, words)
    return Record(
        file=str(fields.path),
        where=fields.where,
        format=NAME,
        batch=batch,
        batch_kind="static",
        input_tokens=prompt,
        output_tokens=output,
        e2e_s=latency,
        output_tokens_per_s=rate,
        stated=_stated(arguments),
        flags=("prefill_included",),
    )


def _mean(fields: Fields) -> Quantity | None:
    values = fields.raw(("metric", "benchmark_values"))
    if not isinstance(values, list) or not values:
        return None
    if not all(isinstance(value, (int, float)) and 0 < value < math.inf for value in values):
        return None
    return Quantity(sum(values) / len(values), "mean of metric.benchmark_values")


def _stated(arguments: Fields | None) -> Conditions:
    if arguments is None:
        return Conditions(engine="vllm")
    return Conditions(
        engine="vllm",
        model=arguments.text((*_ARGUMENTS, "model")),
        tp=arguments.whole((*_ARGUMENTS, "tensor_parallel_size")),
    )


FORMAT = Format(
    NAME,
    "avg_latency and latencies, or benchmark.extra_info.args.batch_size",
    recognises,
    records,
)
