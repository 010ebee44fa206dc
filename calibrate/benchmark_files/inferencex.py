"""InferenceX `agg_*.json`: vLLM- or SGLang-style results put together by utils/process_result.py.

Source: SemiAnalysisAI/InferenceX @843c6254. Times are SECONDS (the script takes `_ms` off the
names). `tput_per_gpu` counts input and output tokens and is not read. `isl` and `osl` are nominal,
requests are drawn shorter: mean lengths follow from latencies and rates. Throughputs are over tp x
pp x pcp GPUs, in disaggregated runs over the decode GPUs for output and the prefill GPUs for input.
`*_intvty` is 1000 / TPOT of the same statistic: its std means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.benchmark_files.serving import chunked, served

NAME = "InferenceX"
_WITHOUT_DRAFTS = (None, "none", "off", "false")


def recognises(opening: Opening) -> bool:
    """Throughput per GPU beside device and concurrency."""
    return opening.has("tput_per_gpu", "hw", "conc")


def records(path: Path) -> Iterator[Record]:
    """A record for each result in the file."""
    for fields in each_object(path):
        yield _record(fields)


def _record(fields: Fields) -> Record:
    disaggregated = _true(fields, "disagg") or _true(fields, "is_multinode")
    tpot, ttft = fields.quantity("mean_tpot"), fields.quantity("mean_ttft")
    latency = fields.quantity("mean_e2el")
    output = derive.reply_length(latency, ttft, tpot)
    nominal = output is None
    output = output or fields.quantity("osl")
    rate = _instance(fields, "output_tput_per_gpu", "num_decode_gpu" if disaggregated else "")
    requests = _over(rate, output)
    prompt = _over(
        _instance(fields, "input_tput_per_gpu", "num_prefill_gpu" if disaggregated else ""),
        requests,
    )
    drafting = (fields.text("spec_decoding", "mtp") or "none").lower() not in _WITHOUT_DRAFTS
    flags = [
        *(["nominal_lengths"] if nominal or prompt is None else []),
        *(["disaggregated"] if disaggregated else []),
        *(["spec_decode"] if drafting else []),
        *([] if drafting else chunked(tpot, fields.quantity("mean_itl"), None)),
    ]
    return served(
        Record(
            file=str(fields.path),
            where=fields.where,
            format=NAME,
            requested=fields.quantity("conc"),
            input_tokens=prompt or fields.quantity("isl"),
            output_tokens=output,
            tpot_s=tpot,
            ttft_s=ttft,
            e2e_s=latency or derive.latency(ttft, tpot, output),
            output_tokens_per_s=rate,
            tpot_sd_s=fields.quantity("std_tpot", zero=True),
            replicas=fields.quantity("decode_num_workers") if disaggregated else None,
            stated=_stated(fields, disaggregated),
            flags=tuple(flags),
        ),
        rate=requests,
    )


def _instance(fields: Fields, name: str, pool: str) -> Quantity | None:
    """A throughput of the whole instance: that per GPU times the GPUs it was divided by."""
    per_gpu = fields.quantity(name)
    gpus = fields.quantity(pool) if pool else None
    if gpus is None and not pool:
        sizes = [fields.number(key) or 1.0 for key in ("tp", "pp", "pcp_size")]
        gpus = Quantity(math.prod(sizes), "(tp x pp x pcp_size)") if fields.number("tp") else None
    if per_gpu is None or gpus is None:
        return None
    return Quantity(per_gpu.value * gpus.value, f"{per_gpu.source} x {gpus.source}")


def _over(total: Quantity | None, one: Quantity | None) -> Quantity | None:
    if total is None or one is None:
        return None
    return Quantity(total.value / one.value, f"({total.source}) / ({one.source})")


def _true(fields: Fields, key: str) -> bool:
    value = fields.raw(key)
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _stated(fields: Fields, disaggregated: bool) -> Conditions:
    side = "decode_" if disaggregated else ""
    tensor = fields.whole(f"{side}tp")
    spread = _true(
        fields, f"{side}dp_attention"
    )  # each of the tp ranks attends for its own requests
    return Conditions(
        model=fields.text("model"),
        device=fields.text("decode_hw", "hw"),
        engine=fields.text("framework"),
        tp=1 if spread else tensor,
        pp=fields.whole(f"{side}pp"),
        ep=fields.whole(f"{side}ep"),
        dp=tensor if spread else None,
        weight_dtype=fields.text("precision"),
    )


FORMAT = Format(NAME, "tput_per_gpu, hw and conc", recognises, records)
