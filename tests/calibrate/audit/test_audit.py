"""Audits by hand: the floor, MBU, where the time went, and what can't be true."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.calibrate.audit.audit import IMPOSSIBLE, WORDS, audit
from roofcast.calibrate.audit.measured import WATERFALL
from roofcast.calibrate.audit.placing import Placer
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.calibrate.benchmark_files.reader import read
from roofcast.calibrate.benchmark_files.record import FLAG_WORDS
from roofcast.hardware.errors import InputError
from tests.calibrate.audit.conftest import (
    BANDWIDTH,
    CALIBRATED,
    GIVEN,
    KV_BYTES,
    WEIGHT_BYTES,
    floor_s,
    record,
)

DATA = Path(__file__).parents[2] / "data" / "benchmark_files"


def test_the_floor_is_bytes_over_bandwidth(judged):
    found = judged(tpot_s=0.01)
    # A reply of 200 to 1000 tokens: steps start with 1000 to 1198 tokens, 1099 on average.
    assert found.cost.context == 1099
    assert found.cost.floor_s == pytest.approx(floor_s(8, 1099), rel=1e-3)
    assert found.cost.step_s >= found.cost.floor_s


def test_mbu_and_mfu_are_of_the_measured_time(judged):
    found = judged(tpot_s=0.01)
    moved = WEIGHT_BYTES + 8 * 1100 * KV_BYTES
    assert found.mbu == pytest.approx(moved / (0.01 * BANDWIDTH), rel=0.01)
    flops = 8 * 2 * WEIGHT_BYTES / 2  # two a weight and sequence; attention adds a little
    assert found.mfu == pytest.approx(flops / (0.01 * 989.4e12), rel=0.05)
    assert judged(tpot_s=0.02).mbu == pytest.approx(found.mbu / 2)


@settings(max_examples=20, deadline=None)
@given(
    tpot=st.floats(1e-4, 1.0),
    batch=st.floats(1.0, 64.0),
    ttft=st.floats(0.02, 2.0),
    kind=st.sampled_from(["static", "achieved"]),
)
def test_the_waterfall_sums_to_the_measured_step(tpot, batch, ttft, kind):
    point = record(tpot_s=tpot, batch=batch, ttft_s=ttft, batch_kind=kind)
    (found,) = audit([point], GIVEN, CALIBRATED)
    assert tuple(found.waterfall) == WATERFALL
    assert sum(found.waterfall.values()) == pytest.approx(tpot)
    explained = {name: value for name, value in found.waterfall.items() if name != "unexplained"}
    assert all(value >= 0 for value in explained.values())


def test_between_whole_batches_everything_is_linear(judged):
    low, middle, high = (judged(tpot_s=0.01, batch=batch).cost for batch in (8, 8.25, 9))
    for name in ("floor_s", "step_s", "bytes_s", "flops_s"):
        ends = np.array([getattr(low, name), getattr(high, name)])
        assert getattr(middle, name) == pytest.approx(float(ends @ [0.75, 0.25]))


def test_no_prompt_interferes_with_a_static_batch(judged):
    assert judged(tpot_s=0.02, ttft_s=0.1).waterfall["prefill_interference"] == 0


def test_prompts_of_others_take_their_share(judged):
    found = judged(tpot_s=0.02, ttft_s=0.1, batch_kind="achieved")
    decoding = 8 * 199 * 0.02 / (0.1 + 199 * 0.02)
    assert found.cost.batch == pytest.approx(decoding)
    # n P / O with n = B (C - 1) / C, P without the weights that the step reads anyway.
    rest = found.cost.prompt_s - found.cost.parts_s["weights"]
    expected = decoding * 7 / 8 * rest / 200
    assert found.waterfall["prefill_interference"] == pytest.approx(expected)


def test_a_latency_gives_a_step_after_its_prefill(judged):
    found = judged(e2e_s=3.0)
    assert found.step.basis == "latency"
    assert found.step.step_s == pytest.approx((3.0 - found.cost.together_s) / 199)
    assert "step_from_latency" in found.flags


def test_a_token_rate_gives_a_step_of_the_batch(judged):
    found = judged(output_tokens_per_s=800.0)
    assert found.step.step_s == pytest.approx(8 / 800)
    assert "step_from_throughput" in found.flags


def test_at_the_floor_nothing_is_impossible(judged):
    assert not judged(tpot_s=floor_s(8, 1099)).impossible
    assert judged(tpot_s=0.97 * floor_s(8, 1099)).flags[0] == "faster_than_physics"


def test_an_unstated_cache_may_be_narrower(judged):
    unstated = replace(GIVEN, kv_dtype=None)
    between = floor_s(64, 1099 / 1.2)  # below the floor with a bf16 cache, above that with fp8
    open_ = judged(given=unstated, batch=64.0, tpot_s=between)
    assert "faster_than_floor" in open_.flags
    assert not open_.impossible
    assert judged(batch=64.0, tpot_s=between).impossible  # said to be bf16


def test_a_latency_below_prefill_and_steps_is_impossible(judged):
    found = judged(e2e_s=0.5)
    assert "faster_than_physics" in found.flags
    assert any("ended after about" in suspect.words for suspect in found.suspects)


def test_a_prompt_cannot_be_read_faster_than_its_arithmetic(judged):
    # 8.03e9 parameters x 2 x 1000 tokens at 989.4 TFLOP/s take 14.1 ms (embeddings apart).
    slow, fast = (judged(tpot_s=0.01, ttft_s=t, batch_kind="achieved") for t in (0.1, 0.01))
    assert not slow.impossible
    assert "prompt_faster_than_physics" in fast.flags
    assert any("prefix cache" in suspect.words for suspect in fast.suspects)


def test_more_sequences_than_memory_holds(judged):
    # 80 GB less 16 GB of weights hold 64e9 / (1200 x 131,072) = 407 sequences at the most.
    assert "does_not_fit" not in judged(tpot_s=0.1, batch=395.0).flags
    found = judged(tpot_s=0.1, batch=460.0)
    assert {"does_not_fit", "over_admission"} <= set(found.flags)
    assert any("in waves of at most 4" in suspect.words for suspect in found.suspects)


def test_weights_that_outgrow_the_device(judged):
    found = judged(given=replace(GIVEN, model="llama-3.1-70b"), tpot_s=0.1)
    assert "does_not_fit" in found.flags
    assert any("weights alone outgrow" in suspect.words for suspect in found.suspects)


def test_a_longer_run_is_not_sooner_done():
    short = record(where="a", e2e_s=3.0)
    long = record(where="b", e2e_s=1.5, output_tokens=400.0)
    first, second = audit([short, long], GIVEN, "ideal")
    assert not first.impossible
    assert "cut_short" in second.flags
    assert second.suspects[0].words.startswith("replies ended before their full length")


def test_times_of_one_run_add_up(judged):
    assert "times_disagree" not in judged(tpot_s=0.01, ttft_s=0.2, e2e_s=2.2).flags
    assert "times_disagree" in judged(tpot_s=0.01, ttft_s=0.2, e2e_s=2.9).flags


def test_a_rate_beyond_arithmetic_is_impossible(judged):
    served = {"tpot_s": 0.01, "ttft_s": 0.2, "batch_kind": "achieved"}
    assert not judged(output_tokens_per_s=760.0, **served).impossible
    found = judged(output_tokens_per_s=60_000.0, **served)
    assert "more_than_physics" in found.flags


def test_slow_and_fast_are_told_by_the_profiles_interval(judged):
    expected = judged(profile=CALIBRATED, tpot_s=0.01).cost.step_s
    flags = {
        factor: judged(profile=CALIBRATED, tpot_s=factor * expected).flags
        for factor in (0.85, 0.95, 1.05, 1.15)
    }
    assert "faster_than_forecast" in flags[0.85]
    assert flags[0.95] == flags[1.05] == ()
    assert flags[1.15] == ("slower_than_forecast",)


def test_model_and_device_are_asked_for_not_guessed():
    point = replace(record(tpot_s=0.01), stated=Conditions(model="acme/tiny", device="H100"))
    with pytest.raises(InputError, match=r"give --model and --device .*names model 'acme/tiny'"):
        audit([point], Conditions(), "ideal")
    with pytest.raises(InputError, match="give --device"):
        audit([point], Conditions(model="llama-3.1-8b"), "ideal")


def test_what_a_file_states_is_used_and_said():
    point = replace(
        record(tpot_s=0.01), stated=Conditions(tp=2, weight_dtype="FP8", kv_dtype="FP8")
    )
    placed = Placer(Conditions(model="llama-3.1-8b", device="h100-sxm"), "ideal").one(point)
    assert placed.setup.parallelism.tensor == 2
    assert placed.setup.kv_dtype == "fp8"
    assert set(placed.assumed) == {
        "FP8 weights, as the file says",
        "TP 2, as the file says",
        "fp8 cache, as the file says",
    }


def test_what_the_user_says_counts_and_a_contradiction_is_said(judged):
    point = replace(record(tpot_s=0.01), stated=Conditions(tp=4))
    (found,) = audit([point], GIVEN, "ideal")
    assert found.placed.setup.parallelism.tensor == 1
    assert found.placed.contradicted == ("TP: the file says 4, you say 1",)
    assert "contradiction" in found.flags


def test_a_format_nobody_knows_is_left_out_and_said():
    point = replace(record(tpot_s=0.01), stated=Conditions(weight_dtype="q7_z", kv_dtype="odd"))
    placed = Placer(Conditions(model="llama-3.1-8b", device="h100-sxm"), "ideal").one(point)
    assert placed.setup.kv_dtype == "bf16"
    assert "the file's weights 'q7_z' are of no known format" in placed.assumed


def test_lengths_that_a_file_lacks_are_given(judged):
    point = record(e2e_s=3.0, batch=None, input_tokens=None, output_tokens=None)
    (blind,) = audit([point], GIVEN, "ideal")
    assert blind.flags == ("not_audited",)
    assert blind.reason == (
        "batch and input tokens and output tokens not in the file: give --batch --input --output"
    )
    told = replace(GIVEN, batch=8.0, input_tokens=1000.0, output_tokens=200.0)
    (found,) = audit([point], told, "ideal")
    assert found.cost.floor_s == pytest.approx(floor_s(8, 1099), rel=1e-3)


def test_a_disaggregated_run_without_worker_count_has_no_batch(judged):
    found = judged(tpot_s=0.01, flags=("disaggregated",), batch_kind="achieved")
    assert not found.cost.counted
    assert (found.mbu, found.waterfall) == (None, None)
    known = judged(
        tpot_s=0.01, flags=("disaggregated",), batch_kind="achieved", batch=16.0, replicas=2.0
    )
    assert known.cost.batch == 8


def test_a_table_of_points_is_audited_row_by_row():
    found = {each.record.point.id: each for each in audit(read(DATA / "points.csv"), Conditions())}
    assert found["a5"].flags == ("not_audited",)
    assert "no-such-model" in found["a5"].reason
    wrong = {name for name, each in found.items() if each.impossible}
    assert wrong == {"a3", "a6", "a7"}
    assert {"cut_short", "faster_than_physics"} <= set(found["a3"].flags)
    assert found["a4"].cost.counted is False  # offline: nobody knows the batch


def test_every_flag_has_words():
    assert set(FLAG_WORDS) | set(IMPOSSIBLE) <= set(WORDS)
    assert all(WORDS.values())


def test_nothing_of_an_audit_is_infinite(judged):
    found = judged(tpot_s=1e-9)
    assert math.isfinite(found.mbu)
    assert all(math.isfinite(value) for value in found.waterfall.values())
