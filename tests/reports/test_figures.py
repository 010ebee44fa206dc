"""Figures: what the data says is what is drawn, where it is drawn, and nothing lies on anything."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from roofcast.hardware.catalog import find
from roofcast.reports import figure_data
from roofcast.reports.figure_data import Bar, Comparison, Line
from roofcast.reports.figures import accuracy, bars, curves, reply, roofline, sheet, style
from roofcast.reports.figures.geometry import meet, overlaps, rectangle, settle
from roofcast.reports.figures.labels import LineText, spread
from roofcast.simulator.api import setup
from roofcast.simulator.models import from_fields
from roofcast.simulator.prediction import CAUSES
from tests.reports.conftest import LLAMA_8B, PROFILE

SIZES = {"column": sheet.COLUMN_IN, "page": sheet.PAGE_IN, "slide": sheet.SLIDE_IN}


@pytest.fixture(autouse=True)
def look():
    mpl.use("agg")
    with style.applied():
        yield


@pytest.fixture(scope="module")
def where():
    return setup(from_fields(LLAMA_8B, name="llama"), find("h100-sxm"), profile=PROFILE)


def canvas(size=sheet.PAGE_IN, panels=1):
    return sheet.sheet("Title", "subtitle", size_in=size, panels=panels)[1]


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def assert_in_order(axes):
    assert overlaps(axes) == []
    settle(axes)
    figure = axes.figure.bbox
    for text in axes.texts:
        box = text.get_window_extent()
        assert box.x0 >= figure.x0 - 1, text.get_text()
        assert box.x1 <= figure.x1 + 1, text.get_text()


class TestRoofline:
    @pytest.fixture
    def data(self, where):
        return figure_data.roofline(where.decode(np.array([1.0, 16.0, 128.0]), 4096))

    @pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
    def test_nothing_overlaps(self, data, size):
        (axes,) = canvas(size)
        roofline.draw(axes, data)
        assert_in_order(axes)

    def test_roofs_are_named_with_their_numbers(self, data):
        (axes,) = canvas()
        roofline.draw(axes, data)
        assert {
            "memory 3.35 TB/s",
            "reached 2.68 TB/s",  # 0.8 of it
            "bf16, fp16 989 TFLOP/s",
            "bf16 reached 693 TFLOP/s",  # 0.7 of it
            "fp8, int8 1.98 PFLOP/s",
        } <= set(texts(axes))

    def test_memory_roofs_have_their_true_slope(self, data):
        (axes,) = canvas()
        roofline.draw(axes, data)
        drawn = {
            line.get_ydata()[0] / line.get_xdata()[0]: line
            for line in axes.lines
            if len(line.get_xdata()) == 2 and line.get_ydata()[0] != line.get_ydata()[1]
        }
        for bandwidth in (3.35e12, 0.8 * 3.35e12):
            line = next(line for slope, line in drawn.items() if np.isclose(slope, bandwidth))
            assert line.get_ydata() / line.get_xdata() == pytest.approx(bandwidth)

    def test_roofs_are_named_along_their_lines(self, data):
        (axes,) = canvas()
        roofline.draw(axes, data)
        named = {text.get_text(): text for text in axes.texts if isinstance(text, LineText)}
        assert named["fp8, int8 1.98 PFLOP/s"].get_rotation() == 0
        before = named["memory 3.35 TB/s"].get_rotation()
        (x0, y0), (x1, y1) = axes.transData.transform([(1, 3.35e12), (10, 3.35e13)])
        assert before == pytest.approx(np.degrees(np.arctan2(y1 - y0, x1 - x0)))
        axes.figure.set_size_inches(4, 8)  # taller: the line is steeper, and its name with it
        assert named["memory 3.35 TB/s"].get_rotation() > before

    def test_datasheet_and_measured_roofs_differ_in_style(self, data):
        (axes,) = canvas()
        roofline.draw(axes, data)
        styles = {
            bool(np.isclose(line.get_ydata()[-1], 0.7 * 989.4e12)): line.get_linestyle()
            for line in axes.lines
            if np.isclose(line.get_ydata()[-1], [989.4e12, 0.7 * 989.4e12]).any()
            and len(line.get_xdata()) == 2
            and line.get_ydata()[0] == line.get_ydata()[1]
        }
        assert styles == {False: "-", True: "--"}

    def test_the_ridge_is_peak_over_bandwidth(self, data):
        (axes,) = canvas()
        roofline.draw(axes, data)
        assert data.ridge_flop_per_byte == pytest.approx(989.4e12 / 3.35e12)
        assert "bf16 ridge\n295 FLOP/B" in texts(axes)

    def test_operators_sit_under_their_roofs_at_their_intensity(self, data):
        for path in data.paths:
            roof = np.minimum(989.4e12, 3.35e12 * path.intensity_flop_per_byte)
            assert np.all(path.flops_per_s <= roof * (1 + 1e-9))
        products = next(path for path in data.paths if path.kind == "gemm")
        # 2 FLOP per weight of 2 bytes and row: the intensity is the batch, less the activations.
        assert products.intensity_flop_per_byte[0] == pytest.approx(1, rel=0.01)
        attention = next(path for path in data.paths if path.kind == "attention")
        # 32 query heads share 8 KV heads: 4 FLOP per byte at every batch.
        assert attention.intensity_flop_per_byte == pytest.approx(np.full(3, 4.0), rel=0.01)

    def test_operators_that_coincide_share_a_name(self, data):
        assert [path.name for path in data.paths] == ["all matrix products", "attention"]

    def test_batches_are_named(self, data):
        (axes,) = canvas()
        roofline.draw(axes, data)
        assert {"batch 1", "16", "128", "all matrix products", "attention"} <= set(texts(axes))

    def test_kinds_are_told_apart_without_colour(self):
        assert len({mark.marker for mark in style.KINDS.values()}) == len(style.KINDS)


class TestCurves:
    @pytest.fixture
    def lines(self, where):
        batches = 2.0 ** np.arange(10)
        return [
            figure_data.tokens_by_batch(where.decode(batches, context), f"{context} context")
            for context in (1024, 8192, 32768)
        ]

    @pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
    def test_nothing_overlaps(self, lines, size):
        (axes,) = canvas(size)
        curves.throughput(axes, lines)
        assert_in_order(axes)

    def test_values_are_those_of_the_forecast(self, where, lines):
        batches = 2.0 ** np.arange(10)
        forecast = where.decode(batches, 8192)
        assert lines[1].y == pytest.approx(forecast.tokens_per_s)
        assert lines[1].low == pytest.approx(batches / forecast.step_time_high_s)

    def test_the_memory_limit_is_drawn_where_memory_is_full(self, where, lines):
        (axes,) = canvas()
        curves.throughput(axes, lines)
        bars_drawn = [line for line in axes.lines if line.get_marker() == "|"]
        assert [line.get_xdata()[0] for line in bars_drawn] == [line.limit for line in lines]
        assert f"memory full at {lines[0].limit:,.0f}" in texts(axes)
        assert where.decode(lines[0].limit, 1024).memory.fits
        assert not where.decode(lines[0].limit + 1, 1024).memory.fits

    def test_beyond_the_limit_a_curve_is_dotted(self, lines):
        (axes,) = canvas()
        curves.throughput(axes, lines)
        solid = [line for line in axes.lines if line.get_linestyle() == "-"]
        dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
        for line, drawn, rest in zip(lines, solid, dotted, strict=True):
            assert drawn.get_xdata()[-1] == rest.get_xdata()[0] == line.limit
            assert rest.get_xdata()[-1] == line.x[-1]

    def test_a_curve_that_never_fits_is_dotted_only(self):
        x = np.array([1.0, 2.0, 4.0])
        (axes,) = canvas()
        curves.throughput(axes, [Line("none", x, x, 0.0), Line("all", x, 2 * x, 9.0)])
        assert_in_order(axes)
        assert not any("memory full" in text for text in texts(axes))

    def test_latency_is_in_milliseconds(self, where):
        contexts = 2.0 ** np.arange(7, 15)
        forecast = where.decode(8, contexts)
        (axes,) = canvas()
        curves.latency(axes, [figure_data.latency_by_context(forecast, "batch 8")])
        assert axes.lines[0].get_ydata() == pytest.approx(forecast.step_time_s * 1e3)
        assert axes.get_ylabel() == "ms per token"

    def test_curves_are_told_apart_without_colour(self, lines):
        (axes,) = canvas()
        curves.throughput(axes, lines)
        markers = [
            line.get_marker() for line in axes.lines if line.get_marker() not in ("None", "|")
        ]
        assert len(set(markers)) == len(lines)


class TestAccuracy:
    @pytest.fixture
    def groups(self):
        measured = np.array([0.01, 0.02, 0.05, 0.1])
        return [
            Comparison("unseen", measured, measured * [1.1, 0.9, 1.0, 1.04], held_out=True),
            Comparison("seen", measured * 1.3, measured * 1.3 * 1.01, held_out=False),
        ]

    def test_nothing_overlaps(self, groups):
        (left, right) = canvas((9.6, 4.6), panels=2)
        accuracy.draw(left, groups, PROFILE.band)
        accuracy.residuals(right, groups, PROFILE.band)
        assert_in_order(left)
        assert_in_order(right)

    def test_held_out_runs_are_filled_and_the_others_hollow(self, groups):
        (axes,) = canvas()
        accuracy.draw(axes, groups)
        dots = [line for line in axes.lines if line.get_marker() not in ("None", "")]
        assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True]
        assert {"unseen (held out)", "seen (in the fit)"} <= set(texts(axes))

    def test_errors_are_those_of_the_held_out_runs(self, groups):
        # |errors| 10, 10, 0, 4 %: median 7 %, p90 10 %.
        assert accuracy.errors(groups) == "4 held-out runs: median error 7.0 %, p90 10 %"
        assert accuracy.errors(groups[1:]) == "no held-out runs"

    def test_residuals_are_per_cent_of_the_measurement(self, groups):
        (axes,) = canvas()
        accuracy.residuals(axes, groups)
        dots = [line for line in axes.lines if line.get_marker() not in ("None", "")]
        assert dots[0].get_ydata() == pytest.approx([10, -10, 0, 4])


class TestBars:
    def test_segments_add_up_to_the_step(self, where):
        forecast = where.decode(np.array([1.0, 64.0]), 4096)
        data = figure_data.breakdown(forecast, ["one", "many"])
        assert [sum(bar.seconds.values()) for bar in data] == pytest.approx(forecast.step_time_s)
        (axes,) = canvas()
        bars.draw(axes, data)
        assert_in_order(axes)
        drawn = [p.get_x() + p.get_width() for p in axes.patches if p.get_height() > 0.5]
        assert max(drawn) == pytest.approx(1e3 * float(forecast.step_time_s.max()))

    def test_only_causes_that_show_are_in_the_key(self):
        data = [Bar("a", {**dict.fromkeys(CAUSES, 0.0), "weights": 1e-3, "compute": 1e-3})]
        (axes,) = canvas()
        bars.draw(axes, data)
        assert [text for text in texts(axes) if text in ("weights", "compute", "KV cache")] == [
            "weights",
            "compute",
        ]

    def test_every_cause_has_a_look_that_survives_grey(self):
        assert set(style.CAUSES) == set(CAUSES)
        looks = {(mark.hatch, round(grey(mark.colour), 1)) for mark in style.CAUSES.values()}
        assert len(looks) == len(CAUSES)


def test_a_reply_is_named_by_cause(where):
    steps = where.decode(64, np.arange(2000.0, 6000.0))
    (axes,) = canvas()
    reply.draw(axes, figure_data.growth(steps))
    assert_in_order(axes)
    assert {"weights", "KV cache", "launch and host"} <= set(texts(axes))
    assert axes.get_ylim()[1] >= 1e3 * float(steps.step_time_s[-1])


@pytest.mark.parametrize("palette", [style.SERIES[:4], [m.colour for m in style.KINDS.values()]])
def test_colours_differ_for_people_who_see_fewer_colours(palette):
    for first, second in itertools.combinations(palette, 2):
        assert np.linalg.norm(deuteranope(first) - deuteranope(second)) > 0.1


def test_files_are_reproducible_and_leave_settings_alone(tmp_path):
    before = dict(mpl.rcParams)
    for name in ("a", "b"):
        (axes,) = canvas()
        curves.throughput(axes, [Line("x", np.array([1.0, 2.0]), np.array([3.0, 4.0]), 9.0)])
        assert [path.suffix for path in sheet.save(axes.figure, tmp_path / name)] == [
            ".png",
            ".svg",
        ]
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert dict(mpl.rcParams) == before


def test_given_axes_are_drawn_on(where):
    figure = Figure(figsize=(12, 4))
    left, right = figure.subplots(1, 2)
    roofline.draw(right, figure_data.roofline(where.decode(np.array([1.0, 8.0]), 1024)))
    assert not left.lines
    assert right.lines


def test_spread_keeps_order_and_distance():
    positions = spread(np.array([10.0, 10.0, 11.0, 50.0]), 5.0, 52.0)
    assert list(np.argsort(positions)) == [0, 1, 2, 3]
    assert np.all(np.diff(positions) >= 5.0 - 1e-9)
    assert positions[-1] <= 52.0 - 2.5


@pytest.mark.parametrize(
    ("turn", "shift", "expected"), [(0, 9, True), (0, 11, False), (45, 13, True)]
)
def test_turned_rectangles_meet(turn, shift, expected):
    size = np.array([10.0, 10.0])
    first = rectangle(np.zeros(2), size, turn)
    assert meet(first, rectangle(np.array([shift, 0.0]), size, turn)) is expected


def linear(colour: str) -> np.ndarray:
    srgb = np.array(mpl.colors.to_rgb(colour))
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def grey(colour: str) -> float:
    """Lightness 0 to 1 (CIE L* / 100)."""
    return float(np.cbrt(linear(colour) @ [0.2126, 0.7152, 0.0722]) * 1.16 - 0.16)


def deuteranope(colour: str) -> np.ndarray:
    """Linear RGB as seen without M cones: Machado, Oliveira and Fernandes 2009, severity 1."""
    matrix = np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    )
    return matrix @ linear(colour)
