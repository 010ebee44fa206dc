"""Judging a file of points: every row answered, nothing measured read, impossible points flagged."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofcast.calibrate.serving_points.physics import roof_share
from roofcast.calibrate.serving_points.points import Measured, read_points
from roofcast.calibrate.serving_points.profiles import serving_profile
from roofcast.calibrate.serving_points.resolve import Case, Refusal, Resolver
from roofcast.calibrate.serving_points.validate import TOO_FAST, judge, metrics_of, validate

PUBLISHED = Path(__file__).with_name("published.csv")


@pytest.fixture(scope="module")
def result():
    return validate(PUBLISHED)


def test_every_metric_of_every_row_has_a_forecast_or_a_reason(result):
    expected = [(p.id, m) for p in read_points(PUBLISHED) for m in metrics_of(p)]
    assert [(r.id, r.metric) for r in result.records] == expected
    for record in result.records:
        if record.predicted is None:
            assert record.reason
        else:
            assert 0 < record.predicted_low < record.predicted < record.predicted_high


def test_unknown_devices_and_pools_are_refused_by_name(result):
    reasons = {r.id: r.reason for r in result.records if r.predicted is None}
    assert set(reasons) == {"c1", "c2"}
    assert "abacus_9000" in reasons["c1"]
    assert "disaggregated" in reasons["c2"]


def test_shipped_profiles_forecast_published_points(result):
    """Dense and mixture-of-experts decode on B200 and H200, batch 1 on L40S: within 15 %."""
    for record in result.records:
        if record.metric == "tpot_ms" and record.predicted is not None:
            assert record.predicted == pytest.approx(record.measured, rel=0.15), record.id


def test_decode_throughput_is_the_inverse_of_decode_time(result):
    """llama-bench's tg is tokens over decode time, prompts not included."""
    values = {r.metric: r.predicted for r in result.records if r.id == "b1"}
    assert values["output_tok_s"] == pytest.approx(1e3 / values["tpot_ms"])


def test_forecasts_never_look_at_what_was_measured():
    points = read_points(PUBLISHED)
    spoilt = tuple(
        replace(
            p,
            measured=Measured(
                *(None if v is None else v * 7 for v in (p.measured.value(m) for m in METRICS))
            ),
        )
        for p in points
    )
    one, other = (judge(p, Resolver((), serving_profile).all(p)) for p in (points, spoilt))
    assert [r.predicted for r in one.records] == [r.predicted for r in other.records]


METRICS = ("tpot_ms", "ttft_ms", "e2e_s", "output_tok_s")


def test_a_row_without_measurements_is_forecast_all_the_same():
    points = tuple(replace(p, measured=Measured()) for p in read_points(PUBLISHED)[:2])
    found = judge(points, Resolver((), serving_profile).all(points))
    assert [r.metric for r in found.records] == ["tpot_ms", "ttft_ms"] * 2
    assert all(r.measured is None and r.predicted for r in found.records)


def test_points_beyond_all_roofs_are_flagged(result):
    assert result.too_fast == ()
    points = tuple(
        replace(p, measured=Measured(tpot_ms=1.0, ttft_ms=10.0)) for p in read_points(PUBLISHED)[:1]
    )
    found = judge(points, Resolver((), serving_profile).all(points))
    assert found.too_fast == ("a1",)  # 70 GB of weights in 1 ms
    assert all(TOO_FAST in record.reason for record in found.records)
    assert not any(TOO_FAST in record.reason for record in result.records)


def test_the_share_of_the_roofs_is_bytes_and_flops_over_time():
    """Llama-3.1-70B in fp8 reads 70 GB a step: at 8 TB/s about 9 ms of 14.87; prompts add little."""
    (case,) = Resolver((), serving_profile).all(read_points(PUBLISHED)[:1])
    assert isinstance(case, Case)
    assert 0.55 < roof_share([case])[0] < 0.75


def test_refusals_are_counted_by_reason(result):
    assert sum(result.refused.values()) == 2
    assert all(isinstance(reason, str) and reason for reason in result.refused)


def test_a_model_beside_no_config_is_refused_by_name():
    points = tuple(replace(p, model="nobody/nothing-7b") for p in read_points(PUBLISHED)[:1])
    (refusal,) = Resolver((), serving_profile).all(points)
    assert isinstance(refusal, Refusal)
    assert "nobody/nothing-7b" in refusal.reason
