"""Every format reads to the numbers of the run it tells of (tests/data/benchmark_files/README.md)."""

import pytest

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.reader import FORMATS, detect, read

PROMPT, REPLY, FIRST_S, GAP_S = 512, 101, 0.08, 0.02
LATENCY_S = FIRST_S + 100 * GAP_S  # 2.08 s
RATE = 4 / LATENCY_S  # requests/s with 4 in flight
OUTPUT_RATE = RATE * REPLY  # 194.2 output tokens/s

SERVED = {
    "vllm_serve.json": ("vLLM bench serve", "littles_law", 4.0),
    "sglang_serving.jsonl": ("SGLang bench_serving", "achieved", 3.96),
    "aiperf.json": ("AIPerf / GenAI-Perf", "littles_law", 4.0),
    "genai_perf.json": ("AIPerf / GenAI-Perf", "littles_law", 4.0),
    "guidellm.json": ("GuideLLM", "achieved", 3.9),
    "trtllm.json": ("trtllm-bench", "achieved", 3.9),
    "inferencex.json": ("InferenceX", "littles_law", 4.0),
}


@pytest.mark.parametrize(("name", "expected"), SERVED.items(), ids=SERVED)
def test_a_served_run(records, data, name, expected):
    format_, kind, batch = expected
    assert detect(data / name).name == format_
    record = records(name)[0]
    assert (record.format, record.batch_kind) == (format_, kind)
    assert record.value("batch") == pytest.approx(batch)
    assert record.value("input_tokens") == pytest.approx(PROMPT)
    assert record.value("output_tokens") == pytest.approx(REPLY)
    assert record.value("tpot_s") == pytest.approx(GAP_S)
    assert record.value("ttft_s") == pytest.approx(FIRST_S)
    assert record.value("e2e_s") == pytest.approx(LATENCY_S)
    assert record.value("output_tokens_per_s") == pytest.approx(OUTPUT_RATE)
    assert not record.static


@pytest.mark.parametrize("name", ["sglang_one_batch.jsonl", "llama_batched_bench.jsonl"])
def test_a_static_batch(records, name):
    record = records(name)[0]
    assert (record.batch_kind, record.static) == ("static", True)
    assert record.value("batch") == 4
    assert record.value("tpot_s") == pytest.approx(GAP_S)
    assert record.value("output_tokens_per_s") == pytest.approx(4 / GAP_S)
    assert derive.decoding(record) == 4


def test_the_server_variant_of_one_batch_is_timed_after_its_last_first_token(records):
    record = records("sglang_one_batch.jsonl")[1]
    assert record.value("tpot_s") == pytest.approx(GAP_S)  # (2.08 - 0.08) / 100
    assert record.tpot_s.source == "(latency - last_ttft) / (output_len - 1)"
    assert record.flags == ()  # acc_length -1 is none


def test_a_table_of_batched_bench_reads_like_its_json(records):
    table, json = records("llama_batched_bench.md")[0], records("llama_batched_bench.jsonl")[0]
    names = ("batch", "input_tokens", "output_tokens", "tpot_s", "ttft_s", "output_tokens_per_s")
    assert [table.value(name) for name in names] == pytest.approx(
        [json.value(name) for name in names]
    )


@pytest.mark.parametrize("name", ["llama_bench.json", "llama_bench.csv", "llama_bench.md"])
def test_llama_bench_in_every_form(records, name):
    short, deep = records(name)
    assert [short.value("tpot_s"), deep.value("tpot_s")] == pytest.approx([1 / 80, 1 / 64])
    assert [short.value("input_tokens"), deep.value("input_tokens")] == [0, 4096]
    assert [short.value("batch"), deep.value("batch")] == [1, 1]
    assert short.value("tpot_sd_s") == pytest.approx(0.8 / 80 / 80)  # stddev_ts / avg_ts x step
    assert short.stated.weight_dtype == "q8_0"


def test_a_prompt_and_reply_timed_together_give_no_step(records):
    together = records("llama_bench.jsonl")[-1]
    assert together.flags == ("prompt_in_time",)
    assert together.tpot_s is None
    assert together.value("e2e_s") == pytest.approx(0.8)


def test_vllm_latency_knows_its_batch_only_from_the_file_beside_it(records, data, tmp_path):
    beside, itself = records("vllm_latency.json")[0], records("vllm_latency.pytorch.json")[0]
    for record in (beside, itself):
        assert record.value("batch") == 4
        assert record.value("input_tokens") == PROMPT
        assert record.value("e2e_s") == pytest.approx(LATENCY_S)
        assert record.tpot_s is None  # a latency with prefill in it is no TPOT
        assert record.flags == ("prefill_included",)
    alone = tmp_path / "latency.json"
    alone.write_bytes((data / "vllm_latency.json").read_bytes())
    (record,) = read(alone)
    assert (record.batch, record.input_tokens, record.output_tokens) == (None, None, None)
    assert record.value("e2e_s") == pytest.approx(LATENCY_S)


def test_aiperf_requests_are_summed_up(records):
    (record,) = records("aiperf_requests.jsonl")
    # Three of 2.08 s between 10 s and 13.08 s; the warm-up and the cancelled one don't count.
    assert record.value("batch") == pytest.approx(3 * 2.08 / 3.08)
    assert record.value("output_tokens_per_s") == pytest.approx(3 * REPLY / 3.08)
    assert record.value("tpot_s") == pytest.approx(0.02)
    assert record.value("tpot_sd_s") == pytest.approx((2 * 0.002**2 / 3) ** 0.5)
    assert record.flags == ("failed_requests",)


def test_ollama_replies(records):
    first, cached = records("ollama_api.jsonl")
    assert first.value("tpot_s") == pytest.approx(GAP_S)
    assert first.value("ttft_s") == pytest.approx(FIRST_S)  # loading the model is no part of it
    assert cached.flags == ("prompt_cached",)
    assert cached.input_tokens is None
    (spoken,) = records("ollama_verbose.txt")
    assert spoken.value("tpot_s") == pytest.approx(60.75 / 3000)  # 1m0.75s
    assert spoken.value("input_tokens") == PROMPT


def test_a_table_of_points_keeps_its_conditions(records):
    loop, static, *_ = records("points.csv")
    assert (loop.batch_kind, static.batch_kind) == ("requested", "static")
    assert loop.stated.device == "h100-sxm"
    assert loop.value("tpot_s") == pytest.approx(0.0081)
    assert static.tpot_s is None
    assert static.value("e2e_s") == pytest.approx(1.9)


def test_every_number_says_where_it_is_from(records):
    sources = records("vllm_serve.json")[0].sources()
    assert sources["tpot_s"] == "mean_tpot_ms"
    assert sources["input_tokens"] == "total_input_tokens / completed"
    assert sources["batch"].startswith("request_throughput x (")
    assert records("guidellm.json")[0].sources()["batch"] == (
        "metrics.request_concurrency.successful.mean"
    )


def test_each_format_has_a_file_here(data):
    seen = {detect(path).name for path in data.iterdir() if path.name != "README.md"}
    assert seen == {each.name for each in FORMATS}
