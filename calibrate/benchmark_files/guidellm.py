"""GuideLLM `benchmarks.json`, schema version 2: a list of benchmarks, each one point of a sweep.

Source: vllm-project/guidellm, src/guidellm/benchmark/schemas and schemas/request_stats.py.
`inter_token_latency_ms` is (last token - first token) / (n - 1), the TPOT of others.
`time_per_output_token_ms` is (last token - start of the request) / n: it includes TTFT
(guidellm#1144) and is only read where nothing better is, with the first token taken out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.fields import Fields
from roofcast.calibrate.benchmark_files.formats import Format, Opening, each_object
from roofcast.calibrate.benchmark_files.record import Quantity, Record
from roofcast.calibrate.benchmark_files.serving import MS, served

NAME = "GuideLLM"
_PER_ITERATION = 1.2  # tokens in a stream chunk, on average, from which it holds several


def recognises(opening: Opening) -> bool:
    """A list of benchmarks beside metadata or arguments."""
    found = opening.first.get("benchmarks") if opening.first is not None else None
    if not isinstance(found, list) or not found or not isinstance(found[0], Mapping):
        return False
    return isinstance(found[0].get("metrics"), Mapping)


def records(path: Path) -> Iterator[Record]:
    """A record for each benchmark of a report."""
    for report in each_object(path):
        found = report.raw("benchmarks")
        for index, benchmark in enumerate(found if isinstance(found, list) else []):
            if isinstance(benchmark, Mapping):
                where = f"{report.where} benchmarks[{index}]".strip()
                yield _record(Fields(report.path, where, benchmark))


def _record(fields: Fields) -> Record:
    gap, flags = _gap(fields)
    if (fields.number(_path("output_tokens_per_iteration")) or 0.0) > _PER_ITERATION:
        flags.append("multi_token_chunks")
    if fields.number(("metrics", "request_totals", "errored")):
        flags.append("failed_requests")
    return served(
        Record(
            file=str(fields.path),
            where=fields.where,
            format=NAME,
            requested=_requested(fields),
            input_tokens=_metric(fields, "prompt_token_count"),
            output_tokens=_metric(fields, "output_token_count"),
            tpot_s=gap,
            ttft_s=_metric(fields, "time_to_first_token_ms", MS),
            e2e_s=_metric(fields, "request_latency"),
            output_tokens_per_s=_metric(fields, "output_tokens_per_second"),
            tpot_sd_s=fields.quantity(
                _path("inter_token_latency_ms", "std_dev"), scale=MS, zero=True
            ),
            samples=fields.quantity(("metrics", "request_totals", "successful")),
            stated=Conditions(model=fields.text(("config", "backend", "model"))),
            flags=tuple(flags),
        ),
        rate=_metric(fields, "requests_per_second"),
        achieved=_metric(fields, "request_concurrency"),
    )


def _gap(fields: Fields) -> tuple[Quantity | None, list[str]]:
    """The time between tokens; from the time per token with the first one taken out, else as it is."""
    gap = _metric(fields, "inter_token_latency_ms", MS)
    whole = _metric(fields, "time_per_output_token_ms", MS)
    if gap is not None or whole is None:
        return gap, []
    rest = derive.without_first(
        whole,
        _metric(fields, "time_to_first_token_ms", MS),
        _metric(fields, "output_token_count"),
    )
    return (rest, ["first_token_taken_out"]) if rest else (whole, ["tpot_includes_ttft"])


def _path(metric: str, statistic: str = "mean") -> tuple[str, ...]:
    return ("metrics", metric, "successful", statistic)


def _metric(fields: Fields, name: str, scale: float = 1.0) -> Quantity | None:
    return fields.quantity(_path(name), scale=scale)


def _requested(fields: Fields) -> Quantity | None:
    strategy = ("config", "strategy")
    if fields.text((*strategy, "type_")) == "synchronous":
        return Quantity(1.0, "config.strategy.type_")
    return fields.quantity((*strategy, "streams"), (*strategy, "max_concurrency"))


FORMAT = Format(NAME, "benchmarks[].metrics", recognises, records)
