"""Suspects: a run that was one thing and is labelled another names what it was."""

from dataclasses import replace

import pytest

from roofcast.calibrate.audit.audit import audit
from roofcast.calibrate.audit.hypotheses import relatives, stored_bits
from roofcast.calibrate.audit.ranges import credible
from roofcast.hardware.catalog import find
from roofcast.hardware.profile import ideal
from roofcast.simulator.api import setup
from roofcast.simulator.models import load
from roofcast.simulator.quantization import requantise
from roofcast.simulator.workload import Parallelism
from tests.calibrate.audit.conftest import CALIBRATED, GIVEN, record

BATCHES = (1.0, 4.0, 16.0, 64.0)


def run(truth, given=GIVEN, profile=CALIBRATED, add=lambda batch: 0.0, scale=1.0):
    """A sweep that took what a true set-up takes, audited under what the label says."""
    points = [
        record(batch=batch, where=str(batch), tpot_s=scale * step_s(truth, batch) + add(batch))
        for batch in BATCHES
    ]
    return audit(points, given, profile)


def step_s(where, batch):
    return float(where.decode(batch, 1099).step_time_s)


def first(found) -> set[str]:
    return {each.suspects[0].cause if each.suspects else "" for each in found}


@pytest.fixture(scope="module")
def as_labelled():
    return setup("llama-3.1-8b", "h100-sxm", profile=CALIBRATED, kv_dtype="bf16")


def test_a_run_as_forecast_has_no_suspects(as_labelled):
    assert first(run(as_labelled)) == {""}


def test_eager_kernels_cost_each_step_the_same(as_labelled):
    found = run(as_labelled, add=lambda batch: 6e-3)
    assert first(found) == {"eager"}
    kernels = found[0].cost.launches
    assert f"{6e-3 / kernels * 1e6:.1f} us for each of {kernels:.0f} kernels" in (
        found[0].suspects[0].words
    )
    assert "4 of 4 points" in found[0].suspects[0].words


def test_a_host_bound_step_grows_with_each_sequence(as_labelled):
    found = run(as_labelled, add=lambda batch: 2.5e-4 * batch)
    assert first(found[-2:]) == {"host_bound"}
    assert "250 us for each sequence" in found[-1].suspects[0].words


def test_wider_weights_than_labelled():
    given = replace(GIVEN, weight_dtype="fp8")
    truth = setup("llama-3.1-8b", "h100-sxm", profile=CALIBRATED, kv_dtype="bf16")
    (point, *_) = run(truth, given)
    assert point.suspects[0].cause == "weight_dtype"
    assert "stored as bf16 rather than" in point.suspects[0].words


def test_narrower_weights_than_labelled():
    truth = setup(
        "llama-3.1-8b", "h100-sxm", profile=CALIBRATED, weight_dtype="int4", kv_dtype="bf16"
    )
    (point, *_) = run(truth)
    assert point.impossible
    assert "int4" in " ".join(suspect.words for suspect in point.suspects)


def test_another_device_of_the_family():
    slower = replace(CALIBRATED, device="h100-pcie-80gb")
    truth = setup("llama-3.1-8b", "h100-pcie-80gb", profile=slower, kv_dtype="bf16")
    found = run(truth)
    assert "device" in {suspect.cause for suspect in found[0].suspects}
    words = next(s.words for s in found[0].suspects if s.cause == "device")
    assert "h100-pcie-80gb rather than h100-sxm-80gb" in words


def test_more_devices_than_labelled():
    truth = setup("llama-3.1-8b", "h100-sxm", profile=CALIBRATED, parallelism=Parallelism(tensor=4))
    found = run(truth)
    assert found[0].impossible
    words = [s.words for s in found[0].suspects if s.cause == "devices"]
    assert words
    assert "tensor-parallel devices rather than 1" in words[0]


def test_speculative_decoding(as_labelled):
    found = run(as_labelled, scale=1 / 2.5)
    assert all(each.impossible for each in found)
    words = [s.words for s in found[0].suspects if s.cause == "spec_decode"]
    assert words
    assert "2.5 tokens a step" in words[0]


@pytest.mark.parametrize(
    ("scale", "said"),
    [(1e-3, "seconds were labelled milliseconds"), (1e3, "milliseconds were read as seconds")],
)
def test_units(as_labelled, scale, said):
    found = run(as_labelled, scale=scale)
    assert first(found) == {"unit"}
    assert said in found[0].suspects[0].words


def test_a_time_of_the_whole_batch(as_labelled):
    point = record(batch=16.0, tpot_s=step_s(as_labelled, 16) / 16)
    (found,) = audit([point], GIVEN, CALIBRATED)
    assert found.impossible
    assert "tpot_of_batch" in {suspect.cause for suspect in found.suspects}


def served(**quantities):
    numbers = {"batch": 8.0, "tpot_s": 0.008, "ttft_s": 0.1, "batch_kind": "achieved"}
    return record(**{**numbers, **quantities})


def causes(point, given=GIVEN) -> dict[str, str]:
    (found,) = audit([point], given, CALIBRATED)
    return {suspect.cause: suspect.words for suspect in found.suspects}


def test_total_tokens_taken_for_output():
    rate = 8 * 200 / (0.1 + 199 * 0.008)
    assert "total_tokens" not in causes(served(output_tokens_per_s=rate))
    found = causes(served(output_tokens_per_s=6 * rate))
    assert f"{rate:,.0f} are output" in found["total_tokens"]


def test_a_rate_per_gpu_taken_for_the_instance():
    given = replace(GIVEN, tp=4)
    rate = 8 * 200 / (0.1 + 199 * 0.008)
    assert "per_gpu" not in causes(served(output_tokens_per_s=rate), given)
    assert f"{rate:,.0f} of all 4" in causes(served(output_tokens_per_s=rate / 4), given)["per_gpu"]


def test_a_tpot_that_includes_the_first_token():
    latency = 1.0 + 199 * 0.008
    honest = causes(served(ttft_s=1.0, e2e_s=latency))
    assert "tpot_includes_ttft" not in honest
    found = causes(served(ttft_s=1.0, tpot_s=latency / 200, e2e_s=latency))
    assert "8.00 ms remain" in found["tpot_includes_ttft"]


def test_a_batch_that_was_not_reached():
    found = causes(served(requested=32.0))
    assert "32 requests in flight were asked for, 8.0 were there" in found["batch_not_reached"]
    assert "batch_not_reached" not in causes(served(requested=8.5))


def test_more_requests_than_an_engine_admits():
    found = causes(served(requested=1000.0, batch=1000.0, tpot_s=0.02))
    assert "over_admission" in found
    assert "1,000 were sent" in found["over_admission"]


def test_requests_that_queue():
    assert "queueing" not in causes(served(ttft_s=0.1))
    assert "to the first token" in causes(served(ttft_s=3.0))["queueing"]


def test_prompts_that_hold_up_decode():
    found = causes(served(input_tokens=16_000.0, ttft_s=0.6, tpot_s=0.025))
    assert "prompts of other requests take about" in found["prefill_interference"]


def test_the_profile_itself_where_it_is_a_relatives():
    relative = replace(CALIBRATED, device="h200-sxm")
    (found,) = audit([served(tpot_s=0.02)], GIVEN, relative)
    assert "profile" in {suspect.cause for suspect in found.suspects}


def test_suspects_are_ranked():
    (found,) = audit([served(tpot_s=0.03, requested=40.0)], GIVEN, CALIBRATED)
    shares = [suspect.share for suspect in found.suspects]
    assert shares == sorted(shares, reverse=True)
    assert len({suspect.cause for suspect in found.suspects}) == len(shares)
    assert all(0 < share <= 1 for share in shares)


def test_under_the_ideal_profile_graphs_cost_something_too():
    (found,) = audit([record(tpot_s=0.0098)], GIVEN, "ideal")
    causes_ = [suspect.cause for suspect in found.suspects]
    assert causes_[0] == "eager"  # 2 x the floor is 13 us a kernel: more than graphs take
    assert ideal("x").engine == "ideal"


def test_mean_bits_of_the_weights():
    llama = load("llama-3.1-8b")
    assert stored_bits(llama) == 16
    assert stored_bits(requantise(llama, "fp8")) == pytest.approx(8, rel=1e-3)
    assert stored_bits(requantise(llama, "int4")) == pytest.approx(4.125, rel=1e-3)  # with scales


def test_relatives_share_a_family_name():
    ids = {device.id for device in relatives(find("a100-sxm-80gb"))}
    assert {"a100-sxm-40gb", "a100-pcie-80gb"} <= ids
    assert "h100-sxm-80gb" not in ids


@pytest.mark.parametrize(
    "name", ["kernel_dispatch_s", "sequence_host_s", "ideal_reach", "tokens_per_step"]
)
def test_every_range_has_a_source(name):
    found = credible(name)
    assert found.source
    assert 0 < found.least < found.most
