"""The waterfall: what is drawn is what was measured, and nothing lies on anything."""

import matplotlib as mpl
import numpy as np
import pytest

from roofcast.calibrate.audit.audit import audit
from roofcast.calibrate.audit.measured import WATERFALL
from roofcast.reports.audit_rows import AuditBar
from roofcast.reports.figures import sheet, style, waterfall
from roofcast.reports.figures.audit_page import audit_page, comparisons
from roofcast.reports.figures.geometry import overlaps
from tests.calibrate.audit.conftest import CALIBRATED, GIVEN, record
from tests.reports.test_figures import SIZES, canvas, texts


@pytest.fixture(autouse=True)
def look():
    mpl.use("agg")
    with style.applied():
        yield


def bar(name="batch 8", unexplained=2e-3, **more) -> AuditBar:
    seconds = dict.fromkeys(WATERFALL, 0.0) | {
        "weights": 5e-3,
        "kv_cache": 2e-3,
        "launch_and_host": 1e-3,
        "prefill_interference": 1.5e-3,
        "unexplained": unexplained,
        **more,
    }
    return AuditBar(name, seconds, floor_s=6e-3, forecast_s=8e-3)


def segments(axes) -> list[tuple[float, float]]:
    """Left and right ends of the bars, in ms."""
    return [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_nothing_overlaps(size):
    for draw, data in (
        (waterfall.draw, bar()),
        (waterfall.draw, bar(unexplained=-1e-3)),
        (waterfall.stack, [bar(f"batch {n}") for n in (1, 8, 64)]),
    ):
        _, (axes,) = sheet.sheet("Title", "subtitle", size_in=size, left_in=1.4)
        draw(axes, data)
        assert overlaps(axes) == []


def test_each_part_starts_where_the_one_before_ended():
    (axes,) = canvas()
    waterfall.draw(axes, bar())
    ends = segments(axes)
    assert ends[:-1] == pytest.approx(
        [pytest.approx(pair) for pair in ((0, 5), (5, 7), (7, 8), (8, 9.5), (9.5, 11.5))]
    )
    assert ends[-1] == pytest.approx((0, 11.5))  # the measured step
    assert {"5.00 ms", "2.00 ms", "11.5 ms"} <= set(texts(axes))
    assert [label.get_text() for label in axes.get_yticklabels()][-2:] == [
        "unexplained",
        "measured",
    ]


def test_a_step_faster_than_forecast_runs_backwards():
    (axes,) = canvas()
    waterfall.draw(axes, bar(unexplained=-1e-3))
    start, end = segments(axes)[-2]
    assert (start, end) == pytest.approx((9.5, 8.5))
    assert "−1.00 ms" in texts(axes)


def test_floor_and_forecast_are_lines():
    (axes,) = canvas()
    waterfall.draw(axes, bar())
    upright = {
        float(np.ravel(line.get_xdata())[0]): line.get_linestyle()
        for line in axes.lines
        if len(set(np.ravel(line.get_xdata()))) == 1 and line.get_color() == style.INK
    }
    assert upright == pytest.approx({6.0: "-", 8.0: "--"}) or upright == {6.0: "-", 8.0: "--"}
    assert {"floor ", " forecast"} <= set(texts(axes))


def test_a_bar_for_each_point():
    (axes,) = canvas()
    waterfall.stack(axes, [bar("batch 1"), bar("batch 64", unexplained=-1e-3)])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["batch 1", "batch 64"]
    assert {"11.5 ms", "8.50 ms", "floor", "measured", "weights", "unexplained"} <= set(texts(axes))


def test_parts_are_told_apart_in_grey():
    marks = {(mark.colour, mark.hatch) for mark in waterfall.PARTS.values()}
    assert len(marks) == len(waterfall.PARTS) == len(WATERFALL)
    assert tuple(waterfall.PARTS) == WATERFALL


def test_pages_of_one_and_of_many_points(tmp_path):
    points = audit(
        [record(batch=batch, tpot_s=0.008 + 1e-4 * batch) for batch in (1.0, 8.0, 16.0, 32.0)],
        GIVEN,
        CALIBRATED,
    )
    for name, chosen in (("one", points[:1]), ("few", points[:2]), ("many", points)):
        written = audit_page(chosen, tmp_path / name)
        assert [path.suffix for path in written] == [".png", ".svg"]
        assert all(path.stat().st_size > 5000 for path in written)


def test_residuals_hold_the_forecast_with_its_prompts():
    points = audit([record(tpot_s=0.009)], GIVEN, CALIBRATED)
    (group,) = comparisons(points)
    assert group.measured_s == pytest.approx([0.009])
    assert group.forecast_s == pytest.approx([points[0].cost.step_s])
