"""Before and after: gains with their noise, against what the declared change allows."""

import math
from dataclasses import replace

import pytest

from roofcast.calibrate.audit.before_after import compare, judge
from roofcast.calibrate.audit.changes import parse_change
from roofcast.calibrate.benchmark_files.record import Quantity
from roofcast.hardware.errors import InputError, UnknownNameError
from roofcast.simulator.api import setup
from roofcast.simulator.workload import Parallelism
from tests.calibrate.audit.conftest import BANDWIDTH, CALIBRATED, GIVEN, KV_BYTES, floor_s, record

CONTEXT = 8099.0  # 8000 tokens of prompt and half of 200


def point(tpot_s: float, batch: float = 64.0, **more):
    return record(batch=batch, input_tokens=8000.0, tpot_s=tpot_s, **more)


def step_s(batch: float = 64, **options) -> float:
    where = setup("llama-3.1-8b", "h100-sxm", profile=CALIBRATED, **options)
    return float(where.decode(batch, CONTEXT).step_time_s)


BEFORE_S = step_s()


def gain(after_s: float, change: str, before_s: float = BEFORE_S, profile=CALIBRATED, **more):
    (found,) = compare(
        [point(before_s)], [point(after_s, **more)], parse_change(change), GIVEN, profile
    )
    return found


def test_a_change_that_does_what_it_can():
    found = gain(step_s(kv_dtype="fp8"), "kv=fp8")
    assert found.verdict == "consistent"
    assert found.share == pytest.approx(1.0)
    assert found.gain == pytest.approx(found.available)
    # By hand, at the floor: half of 64 x 8101 tokens of cache saved of weights and cache.
    (ideal,) = compare([point(0.05)], [point(0.04)], parse_change("fp8-kv"), GIVEN, "ideal")
    saved = 64 * 8101 * KV_BYTES / 2 / BANDWIDTH
    assert 0.05 / (0.05 - saved) - 1 == pytest.approx(ideal.available, rel=0.02)


def test_a_change_that_does_too_little():
    reached = BEFORE_S - 0.3 * (BEFORE_S - step_s(kv_dtype="fp8"))
    found = gain(reached, "kv=fp8")
    assert found.verdict == "below what is available"
    assert found.share == pytest.approx(0.3)


def test_a_change_that_costs_time():
    assert gain(1.1 * BEFORE_S, "kv=fp8").verdict == "below what is available"
    assert "were lost" in gain(1.1 * BEFORE_S, "kv=fp8").words


def test_a_gain_that_the_change_cannot_bring_alone():
    # At batch 1 and a short context the cache is a hundredth of the bytes.
    old, new = record(batch=1.0, tpot_s=0.008), record(batch=1.0, tpot_s=0.006)
    for profile in ("ideal", CALIBRATED):
        (found,) = compare([old], [new], parse_change("kv=fp8"), GIVEN, profile)
        assert found.verdict == "not possible by this change alone"
        assert found.possible < 0.05
        assert "something else changed too" in found.words


def test_more_than_forecast_may_be_right():
    old, new = step_s(16), step_s(16, kv_dtype="fp8")
    after = old - 1.4 * (old - new)  # 7.9 ms, still above the floor of 7.0 ms
    (found,) = compare(
        [point(old, 16.0)], [point(after, 16.0)], parse_change("kv=fp8"), GIVEN, CALIBRATED
    )
    assert found.verdict == "consistent"
    assert "slower than forecast" in found.words


@pytest.mark.parametrize("change", ["weights=int4", "int4-weights"])
def test_narrower_weights(change):
    old, new = step_s(1), step_s(1, weight_dtype="int4")
    (found,) = compare(
        [point(old, 1.0)], [point(new, 1.0)], parse_change(change), GIVEN, CALIBRATED
    )
    assert found.share == pytest.approx(1.0)
    assert found.gain > 1.0  # most bytes of a step at batch 1 are weights, a quarter as many now


def test_more_ranks():
    new = step_s(parallelism=Parallelism(tensor=2))
    found = gain(new, "tp=2")
    assert found.share == pytest.approx(1.0)
    assert found.possible == pytest.approx(1.0)  # twice as fast at the most
    assert gain(0.45 * BEFORE_S, "tp=2").verdict == "not possible by this change alone"


def test_graphs_remove_what_the_forecast_does_not_explain():
    found = gain(BEFORE_S, "graphs", before_s=BEFORE_S + 6e-3)
    assert found.share == pytest.approx(1.0)
    assert found.verdict == "consistent"
    impossible = gain(0.9 * floor_s(64, CONTEXT), "graphs", before_s=BEFORE_S)
    assert impossible.verdict == "not possible by this change alone"


def test_fused_kernels_touch_little():
    found = gain(0.7 * BEFORE_S, "fused-kernel")
    assert found.available < 0.1
    assert found.verdict == "not possible by this change alone"


def test_speculative_decoding_by_what_was_accepted():
    where = setup("llama-3.1-8b", "h100-sxm", profile=CALIBRATED, kv_dtype="bf16")
    verify = float(where.decode(64, CONTEXT, 4).step_time_s)
    found = gain(verify / 2.0, "spec-decode=3", tokens_per_step=2.0, step_s=verify)
    assert found.share == pytest.approx(1.0)
    unknown = gain(0.6 * BEFORE_S, "spec-decode=3")
    assert (unknown.available, unknown.share, unknown.verdict) == (None, None, "consistent")
    assert gain(0.2 * BEFORE_S, "spec-decode=3").verdict == "not possible by this change alone"


def test_noise_of_one_run_and_of_repeats():
    spread = {"tpot_sd_s": 0.002, "samples": 100.0}
    change = parse_change("kv=fp8")
    (single,) = compare([point(0.02, **spread)], [point(0.016, **spread)], change, GIVEN, "ideal")
    # Of each side: 0.002 / sqrt(100) over the mean, and 1 % between runs.
    noise = math.hypot(math.hypot(0.01, 0.01), math.hypot(0.0125, 0.01))
    assert single.gain_high - single.gain == pytest.approx(1.96 * 1.25 * noise)
    repeats = [point(0.0198), point(0.02), point(0.0202)]
    (several,) = compare(repeats, [point(0.016)], change, GIVEN, "ideal")
    assert several.gain == pytest.approx(0.25)
    noise = math.hypot(0.01 / math.sqrt(3), 0.01)
    assert several.gain_high - several.gain == pytest.approx(1.96 * 1.25 * noise)


def test_points_are_matched_by_what_was_asked_for():
    def sweep(factor):
        return [
            point(factor * 0.01 * batch, batch, requested=batch, batch_kind="achieved", ttft_s=0.5)
            for batch in (8.0, 32.0, 128.0)
        ]

    found = compare(sweep(1.0), sweep(0.8)[::-1], parse_change("kv=fp8"), GIVEN, "ideal")
    assert [each.before.record.value("requested") for each in found] == [8, 32, 128]
    assert [each.gain for each in found] == pytest.approx([0.25] * 3)
    with pytest.raises(InputError, match="no point was measured before and after"):
        compare(sweep(1.0), [point(0.01, 500.0)], parse_change("kv=fp8"), GIVEN, "ideal")


def test_the_change_says_how_the_run_after_was_set_up():
    assert parse_change("tp=4").after(GIVEN) == replace(GIVEN, tp=4)
    assert parse_change("fp8-kv").after(GIVEN) == replace(GIVEN, kv_dtype="fp8")
    assert parse_change("graphs").after(GIVEN) == GIVEN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("magic", "unknown change 'magic'"),
        ("kv", "kv=fp8"),
        ("kv=fp9", "fp9"),
        ("weights=int5", "int5"),
        ("tp=0", "1 to 1024"),
        ("tp=x", "1 to 1024"),
        ("spec-decode", "1 to 64"),
        ("graphs=yes", "takes no value"),
    ],
)
def test_a_change_nobody_knows(text, said):
    with pytest.raises((InputError, UnknownNameError), match=said):
        parse_change(text)


def test_a_gain_at_the_edge():
    assert judge(0.10, 0.20, 0.1, 0.1) == "consistent"
    assert judge(0.1001, 0.20, 0.1, 0.1) == "not possible by this change alone"
    assert judge(-0.01, 0.01, 0.0, 0.02) == "consistent"
    assert judge(-0.05, -0.01, None, 0.5) == "below what is available"


def test_nothing_to_compare():
    blind = replace(record(), batch=None, tpot_s=Quantity(0.01, "t"))
    with pytest.raises(InputError, match="none before"):
        compare([blind], [blind], parse_change("graphs"), GIVEN, "ideal")
