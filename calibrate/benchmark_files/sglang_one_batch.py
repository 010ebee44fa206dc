"""SGLang `bench_one_batch --result-filename`, and `bench_one_batch_server`: one JSON object a line.

Source: python/sglang/bench_one_batch.py and bench_one_batch_server.py. A static batch without
scheduler: `median_decode_latency` is one decode step, in seconds. `overall_throughput` counts input
tokens and is not read. The server variant times whole batches; its step is what remains after the
last first token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record

NAME = "SGLang bench_one_batch"


def recognises(opening: Opening) -> bool:
    """Batch and lengths with an overall throughput."""
    return opening.has("batch_size", "input_len", "output_len", "overall_throughput")


def records(path: Path) -> Iterator[Record]:
    """A record for each batch in the file."""
    for fields in each_object(path):
        yield _record(fields)


def _record(fields: Fields) -> Record:
    ttft = fields.quantity("prefill_latency", "last_ttft")
    batch, output = fields.quantity("batch_size"), fields.quantity("output_len")
    latency = fields.quantity("total_latency", "latency")
    step = fields.quantity("median_decode_latency") or _after_first(latency, ttft, output)
    accepted = _accepted(fields)
    rate = fields.quantity("median_decode_throughput")
    if rate is None and batch is not None and step is not None:
        rate = Quantity(batch.value / step.value, f"{batch.source} / ({step.source})")
    return Record(
        file=str(fields.path),
        where=fields.where,
        format=NAME,
        batch=batch,
        batch_kind="static",
        input_tokens=fields.quantity("input_len"),
        output_tokens=output,
        tpot_s=step,
        ttft_s=ttft,
        e2e_s=latency,
        output_tokens_per_s=rate,
        tokens_per_step=accepted,
        step_s=derive.step(step, accepted),
        stated=Conditions(engine="sglang"),
        flags=("spec_decode",) if accepted else (),
    )


def _accepted(fields: Fields) -> Quantity | None:
    """Tokens a step with speculative decoding; the tool writes -1 without."""
    value = fields.raw("acc_length")
    return Quantity(float(value), "acc_length") if isinstance(value, float) and value > 1 else None


def _after_first(
    latency: Quantity | None, ttft: Quantity | None, output: Quantity | None
) -> Quantity | None:
    """(latency - last first token) / (tokens - 1)."""
    if latency is None or ttft is None or output is None:
        return None
    if output.value < 2 or latency.value <= ttft.value:
        return None
    value = (latency.value - ttft.value) / (output.value - 1.0)
    return Quantity(value, f"({latency.source} - {ttft.source}) / ({output.source} - 1)")


FORMAT = Format(
    NAME, "batch_size, input_len, output_len and overall_throughput", recognises, records
)
