"""trtllm-bench `--report_json`.

Source: NVIDIA/TensorRT-LLM, tensorrt_llm/bench/dataclasses/reporting.py. The one format that says
how it ran: dtypes, cache dtype, ranks. `streaming_metrics` is there only with --streaming; without
it the mean request latency is all there is. `world_info.max_batch_size` is a cap that nobody asked
to reach, and `output_throughput_per_user_tok_s` includes TTFT: neither is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Record
from roofcast.calibrate.benchmark_files.serving import MS, served

NAME = "trtllm-bench"
_AUTO = ("", "none", "null", "auto")


def recognises(opening: Opening) -> bool:
    """Its three sections."""
    return opening.has("world_info", "request_info", "performance")


def records(path: Path) -> Iterator[Record]:
    """A record for each report in the file."""
    for fields in each_object(path):
        yield _record(fields)


def _record(fields: Fields) -> Record:
    return served(
        Record(
            file=str(fields.path),
            where=fields.where,
            format=NAME,
            input_tokens=fields.quantity(("request_info", "avg_input_length")),
            output_tokens=fields.quantity(("request_info", "avg_output_length")),
            tpot_s=fields.quantity(("streaming_metrics", "avg_tpot_ms"), scale=MS),
            ttft_s=fields.quantity(("streaming_metrics", "avg_ttft_ms"), scale=MS),
            e2e_s=fields.quantity(("performance", "avg_request_latency_ms"), scale=MS),
            output_tokens_per_s=fields.quantity(("performance", "system_output_throughput_tok_s")),
            samples=fields.quantity(("request_info", "num_requests")),
            stated=_stated(fields),
        ),
        rate=fields.quantity(("performance", "request_throughput_req_s")),
        achieved=fields.quantity(("request_info", "avg_num_concurrent_requests")),
    )


def _stated(fields: Fields) -> Conditions:
    quantised = _named(fields, ("engine", "quantization"))
    return Conditions(
        model=fields.text(("engine", "model")),
        device=fields.text(("machine", "name")),
        engine="trtllm",
        tp=fields.whole(("world_info", "tp_size")),
        pp=fields.whole(("world_info", "pp_size")),
        ep=fields.whole(("world_info", "ep_size")),
        weight_dtype=quantised or _named(fields, ("engine", "dtype")),
        kv_dtype=_named(fields, ("engine", "kv_cache_dtype")),
    )


def _named(fields: Fields, key: tuple[str, ...]) -> str | None:
    """A dtype that the file names; `None` and `auto` are none."""
    text = fields.text(key)
    return None if text is None or text.lower() in _AUTO else text


FORMAT = Format(NAME, "world_info, request_info and performance", recognises, records)
