"""vLLM `bench serve --save-result`, plain, `--save-detailed` or `--append-result`.

Source: vllm/benchmarks/serve.py. TPOT is (latency - TTFT) / (tokens - 1) of each request; ITL is
the gap between stream chunks, which is longer where a chunk holds several tokens. Times are ms,
throughputs of the run, ramp and prefill included. `max_concurrency` is a cap and
`max_concurrent_requests` a peak: the mean in flight is Little's law.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Record
from roofcast.calibrate.benchmark_files.serving import MS, chunked, served

NAME = "vLLM bench serve"


def recognises(opening: Opening) -> bool:
    """The totals of `bench serve`; SGLang's files have a second token count besides."""
    totals = opening.has("total_output_tokens", "request_throughput", "output_throughput")
    return totals and not opening.has("total_output_tokens_retokenized")


def records(path: Path) -> Iterator[Record]:
    """A record for each run in the file."""
    for fields in each_object(path):
        yield _record(fields)


def _record(fields: Fields) -> Record:
    completed = fields.quantity("completed")
    output = derive.mean(fields.quantity("total_output_tokens"), completed)
    tpot, ttft = (
        fields.quantity("mean_tpot_ms", scale=MS),
        fields.quantity("mean_ttft_ms", scale=MS),
    )
    latency = fields.quantity("mean_e2el_ms", scale=MS) or derive.latency(ttft, tpot, output)
    accepted = fields.quantity("spec_decode_acceptance_length")
    flags = [*chunked(tpot, fields.quantity("mean_itl_ms", scale=MS), accepted)]
    if fields.number("failed"):
        flags.append("failed_requests")
    return served(
        Record(
            file=str(fields.path),
            where=fields.where,
            format=NAME,
            requested=fields.quantity("max_concurrency"),
            input_tokens=derive.mean(fields.quantity("total_input_tokens"), completed),
            output_tokens=output,
            tpot_s=tpot,
            ttft_s=ttft,
            e2e_s=latency,
            output_tokens_per_s=fields.quantity("output_throughput"),
            tokens_per_step=accepted,
            tpot_sd_s=fields.quantity("std_tpot_ms", scale=MS, zero=True),
            samples=completed,
            stated=Conditions(
                model=fields.text("model_id"),
                tp=fields.whole("tensor_parallel_size"),  # where --metadata gave it
            ),
            flags=tuple(flags),
        ),
        rate=fields.quantity("request_throughput"),
    )


FORMAT = Format(
    NAME,
    "total_output_tokens, request_throughput and output_throughput",
    recognises,
    records,
)
