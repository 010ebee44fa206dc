"""SGLang `bench_serving --output-file`: one JSON object a line, with bare `Infinity` in it.

Source: python/sglang/bench_serving.py. `concurrency` is the mean in flight that was reached,
`max_concurrency` the cap. Lengths are the totals over the requests; `random_*_len` is only what was
asked for. Times are ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.benchmark_files.serving import MS, chunked, served

NAME = "SGLang bench_serving"
_COUNTS_DIFFER = 0.02
_ENGINES = {
    "sglang": "sglang",
    "sglang-native": "sglang",
    "sglang-oai": "sglang",
    "sglang-oai-chat": "sglang",
    "vllm": "vllm",
    "vllm-chat": "vllm",
    "trt": "trtllm",
}
"""Backends of the tool that name an engine."""


def recognises(opening: Opening) -> bool:
    """SGLang's second token count, which no other tool writes."""
    return opening.has("total_output_tokens_retokenized", "request_throughput")


def records(path: Path) -> Iterator[Record]:
    """A record for each run in the file."""
    for fields in each_object(path):
        yield _record(fields)


def _record(fields: Fields) -> Record:
    completed = fields.quantity("completed")
    prompt, nominal_prompt = _length(fields, completed, "total_input_tokens", "random_input_len")
    output, nominal = _length(fields, completed, "total_output_tokens", "random_output_len")
    tpot, ttft = (
        fields.quantity("mean_tpot_ms", scale=MS),
        fields.quantity("mean_ttft_ms", scale=MS),
    )
    accepted = fields.quantity("accept_length")
    flags = [*chunked(tpot, fields.quantity("mean_itl_ms", scale=MS), accepted)]
    flags += ["nominal_lengths"] if nominal or nominal_prompt else []
    flags += ["retokenised"] if _counts_differ(fields) else []
    return served(
        Record(
            file=str(fields.path),
            where=fields.where,
            format=NAME,
            requested=fields.quantity("max_concurrency"),
            input_tokens=prompt,
            output_tokens=output,
            tpot_s=tpot,
            ttft_s=ttft,
            e2e_s=fields.quantity("mean_e2e_latency_ms", scale=MS)
            or derive.latency(ttft, tpot, output),
            output_tokens_per_s=fields.quantity("output_throughput"),
            tokens_per_step=accepted,
            tpot_sd_s=fields.quantity("std_tpot_ms", scale=MS, zero=True),
            samples=completed,
            stated=Conditions(
                model=fields.text(("server_info", "model_path")),
                engine=_ENGINES.get(fields.text("backend") or ""),
                tp=fields.whole(("server_info", "tp_size")),
            ),
            flags=tuple(flags),
        ),
        rate=fields.quantity("request_throughput"),
        achieved=fields.quantity("concurrency"),
    )


def _length(
    fields: Fields, completed: Quantity | None, total: str, nominal: str
) -> tuple[Quantity | None, bool]:
    """The mean length that ran; else the one asked for, and True."""
    ran = derive.mean(fields.quantity(total), completed)
    asked = None if ran else fields.quantity(nominal)
    return ran or asked, asked is not None


def _counts_differ(fields: Fields) -> bool:
    counted = fields.number("total_output_tokens")
    again = fields.number("total_output_tokens_retokenized")
    return bool(counted and again and abs(again / counted - 1.0) > _COUNTS_DIFFER)


FORMAT = Format(NAME, "total_output_tokens_retokenized and request_throughput", recognises, records)
