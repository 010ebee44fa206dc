"""Where benchmark files say one thing and mean another."""

import json

import pytest

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.reader import read
from roofcast.calibrate.benchmark_files.record import Quantity, Record


def changed(data, tmp_path, name, **changes):
    """The first object of a small file with some of its fields changed, read."""
    document = json.loads((data / name).read_text().splitlines()[0])
    for key, value in changes.items():
        if value is ...:
            document.pop(key)
        else:
            document[key] = value
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return read(path)[0]


def test_guidellms_time_per_output_token_includes_the_first(records):
    other = records("guidellm.json")[1]  # has no inter-token latency
    assert other.value("tpot_s") == pytest.approx(0.02)  # not 2.08 / 101
    assert "first_token_taken_out" in other.flags
    assert "time_per_output_token_ms" in other.tpot_s.source  # the name it had


def test_aiperfs_inter_token_latency_is_a_tpot_in_its_own_unit(records):
    assert records("aiperf.json")[0].value("tpot_s") == pytest.approx(0.02)  # 20,000 us
    assert records("aiperf.json")[0].tpot_s.source == "inter_token_latency.avg"


def test_chunks_of_several_tokens_are_no_steps(records):
    chunks = records("vllm_serve_appended.json")[1]  # ITL 30 ms, TPOT 20 ms
    assert "multi_token_chunks" in chunks.flags
    assert chunks.value("tpot_s") == pytest.approx(0.02)


def test_a_step_of_speculative_decoding_yields_several_tokens(records):
    (drafted,) = records("vllm_serve_detailed.json")
    assert "spec_decode" in drafted.flags
    assert drafted.value("tpot_s") == pytest.approx(0.02)
    assert drafted.value("step_s") == pytest.approx(0.02 * 2.5)


def test_concurrency_asked_for_is_not_the_batch(records):
    record = records("vllm_serve.json")[0]
    assert record.value("requested") == 5
    assert record.value("batch") == pytest.approx(4)  # request rate x latency, not the peak of 5


def test_what_decodes_is_less_than_what_is_in_flight(records):
    record = records("vllm_serve.json")[0]
    assert derive.decoding(record) == pytest.approx(4 * 2.0 / 2.08)


def test_a_batch_that_is_only_asked_for_is_flagged(data, tmp_path):
    record = changed(data, tmp_path, "inferencex.json", output_tput_per_gpu=...)
    assert (record.value("batch"), record.batch_kind) == (5, "requested")
    assert "batch_only_requested" in record.flags


def test_appended_runs_are_records_of_their_own(records):
    first, second = records("vllm_serve_appended.json")
    assert (first.where, second.where) == ("object 1", "object 2")
    assert second.value("e2e_s") == pytest.approx(4.16)  # mean_e2el_ms, where it is there


def test_bare_infinity_is_read(data, records):
    assert "Infinity" in (data / "sglang_serving.jsonl").read_text()
    assert len(records("sglang_serving.jsonl")) == 2


def test_metadata_may_be_text(records):
    assert records("vllm_serve.json")[0].stated.tp == 2  # "2", from --metadata


def test_inferencex_counts_input_tokens_in_its_throughput(records):
    record = records("inferencex.json")[0]
    assert record.value("output_tokens_per_s") == pytest.approx(101 * 4 / 2.08)  # of both GPUs
    assert record.output_tokens_per_s.source == "output_tput_per_gpu x (tp x pp x pcp_size)"


def test_inferencex_disaggregated_has_other_denominators(records):
    (record,) = records("inferencex_disagg.json")
    assert record.value("output_tokens_per_s") == pytest.approx(101 * 4 / 2.08)  # 8 decode GPUs
    assert record.value("input_tokens") == pytest.approx(512)  # 4 prefill GPUs
    assert set(record.flags) >= {"disaggregated", "spec_decode"}
    assert (record.stated.tp, record.stated.dp, record.value("replicas")) == (1, 4, 2)


def test_lengths_that_ran_count_before_nominal_ones(data, tmp_path, records):
    for name in ("sglang_serving.jsonl", "inferencex.json"):  # both ask for 600 and 120
        assert records(name)[0].value("input_tokens") == pytest.approx(512)
        assert records(name)[0].value("output_tokens") == pytest.approx(101)
    nominal = changed(data, tmp_path, "inferencex.json", mean_e2el=...)
    assert nominal.value("output_tokens") == 120
    assert "nominal_lengths" in nominal.flags


def test_n_batch_of_llama_bench_is_no_batch(records):
    assert records("llama_bench.json")[0].value("batch") == 1  # n_batch 2048


def test_depth_may_stand_in_the_label_only(records):
    assert records("llama_bench.md")[1].value("input_tokens") == 4096  # tg64 @ d4096
    assert records("llama_bench.md")[1].context == 4096 + 31


def test_two_token_counts_that_differ_are_flagged(records):
    near, far = records("sglang_serving.jsonl")
    assert "retokenised" not in near.flags  # 3 of 4040
    assert "retokenised" in far.flags  # 400 of 4040


def test_trtllm_says_how_it_ran(records):
    stated = records("trtllm.json")[0].stated
    assert (stated.tp, stated.weight_dtype, stated.kv_dtype) == (2, "FP8", "FP8")
    assert records("trtllm.json")[0].requested is None  # max_batch_size is a cap


def test_trtllm_without_streaming_has_no_tpot(data, tmp_path):
    record = changed(data, tmp_path, "trtllm.json", streaming_metrics=...)
    assert record.tpot_s is None
    assert record.value("e2e_s") == pytest.approx(2.08)


def test_random_lengths_of_public_points_are_means(tmp_path):
    header = "id,source,model,gpu,engine,load_mode,isl,osl,concurrency_or_batch,tpot_ms,notes\n"
    row = 'x,own,m,h100-sxm,vllm,closed_loop,1000,200,8,9.0,"uniform in [0.8,1.0] x nominal"\n'
    path = tmp_path / "points.csv"
    path.write_text(header + row)
    record = read(path)[0]
    assert record.value("input_tokens") == pytest.approx(900)
    assert record.value("output_tokens") == pytest.approx(180)


def test_mean_context_of_a_reply():
    # A prompt of 10 and 4 tokens: three steps start with 10, 11 and 12 tokens cached.
    record = Record("f", "", "x", input_tokens=Quantity(10, ""), output_tokens=Quantity(4, ""))
    assert record.context == pytest.approx((10 + 11 + 12) / 3)
