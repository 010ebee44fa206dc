"""Benchmark files as points that calibrate."""

import pytest

from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.reader import read
from roofcast.calibrate.benchmark_files.to_points import point_of, read_as_points
from roofcast.calibrate.serving_points.points import read_points
from roofcast.calibrate.serving_points.resolve import Case, Resolver
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import ideal

GIVEN = Conditions(model="llama-3.1-8b", device="h100-sxm", engine="vllm", tp=2, kv_dtype="fp8")


def test_a_served_run_is_a_closed_loop(data):
    (point,) = read_as_points([data / "vllm_serve.json"], GIVEN)
    assert (point.model, point.gpu, point.engine) == ("llama-3.1-8b", "h100-sxm", "vllm")
    assert point.load_mode == "closed_loop"
    assert (point.isl, point.osl, point.concurrency) == pytest.approx((512, 101, 4))
    assert (point.tp, point.kv_dtype) == (2, "fp8")
    assert point.measured.tpot_ms == pytest.approx(20)
    assert point.measured.ttft_ms == pytest.approx(80)
    assert point.measured.e2e_s is None  # a point's e2e_s is of a static batch
    assert point.tpot_stat == "mean_tpot_ms"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("sglang_one_batch.jsonl", "static_batch"),
        ("llama_bench.json", "single_stream"),
        ("ollama_api.jsonl", "single_stream"),
        ("trtllm.json", "closed_loop"),
    ],
)
def test_load_modes(data, name, mode):
    assert {point.load_mode for point in read_as_points([data / name], GIVEN)} == {mode}


def test_the_engine_may_come_from_the_file(data):
    bare = Conditions(model="llama-3.1-8b", device="h100-sxm")
    (point, *_) = read_as_points([data / "sglang_serving.jsonl"], bare)
    assert point.engine == "sglang"
    with pytest.raises(InputError, match="give --engine"):
        read_as_points([data / "vllm_serve.json"], bare)


def test_model_and_device_have_to_be_said(data):
    with pytest.raises(InputError, match="give --model and --device"):
        read_as_points([data / "trtllm.json"], Conditions(engine="trtllm"))


def test_rows_of_a_table_stay_as_they_are(data):
    assert read_as_points([data / "points.csv"], GIVEN) == read_points(data / "points.csv")


def test_a_point_can_be_resolved_like_a_public_one(data):
    (record,) = read(data / "vllm_serve.json")
    resolver = Resolver((), lambda device, named: ideal(device.id))
    case = resolver.one(point_of(record, GIVEN))
    assert isinstance(case, Case)
    assert case.setup.parallelism.tensor == 2
    assert case.setup.kv_dtype == "fp8"
