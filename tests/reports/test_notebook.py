"""Forecasts in notebooks: text, HTML, labelled data, figures."""

import subprocess
import sys

import numpy as np
import pytest

from roofcast.hardware.errors import InputError
from roofcast.reports import plot
from roofcast.reports.plotting import plot_reply
from roofcast.simulator import Forecast, forecast, grid, setup
from roofcast.simulator.tables import COLUMNS
from roofcast.simulator.trajectory import decode


@pytest.fixture(scope="module")
def two_by_two() -> Forecast:
    return forecast("llama-3.1-8b", "h100-sxm", *grid([1, 64], [1024, 8192]), engine="vllm")


def test_it_prints_as_a_table(two_by_two):
    lines = str(two_by_two).splitlines()
    assert lines[0] == "llama-3.1-8b on 1 x h100-sxm-80gb, profile h100-sxm-80gb under vllm"
    assert [line.split()[:2] for line in lines[2:]] == [
        ["1", "1,024"],
        ["1", "8,192"],
        ["64", "1,024"],
        ["64", "8,192"],
    ]


def test_a_long_grid_is_cut_in_the_middle():
    many = forecast("llama-3.1-8b", "h100-sxm", np.arange(1, 101))
    lines = str(many).splitlines()
    assert len(lines) == 1 + 1 + 61
    assert lines[32].split()[0] == "…"
    assert lines[-1].split()[0] == "100"


def test_html_escapes_every_text(two_by_two):
    from dataclasses import replace

    bad = replace(two_by_two, profile=replace(two_by_two.profile, name="<script>alert(1)</script>"))
    assert "<script" not in bad._repr_html_()
    assert "&lt;script&gt;" in bad._repr_html_()
    assert two_by_two._repr_html_().count("<tr>") == 5


def test_a_dataframe_has_the_columns_of_the_contract(two_by_two):
    pytest.importorskip("pandas")
    frame = two_by_two.to_dataframe()
    assert list(frame.columns) == list(COLUMNS)
    assert frame.step_time_s.tolist() == pytest.approx(np.ravel(two_by_two.step_time_s))


def test_a_dataset_is_labelled_by_batch_and_context(two_by_two):
    data = two_by_two.to_xarray()
    assert data.sizes == {"batch": 2, "context": 2}
    point = data.sel(batch=64, context=1024)
    assert float(point.step_time_s) == pytest.approx(float(two_by_two.step_time_s[1, 0]))
    assert str(point.bound.values) == two_by_two.bound[1, 0]
    assert data.attrs["model"] == "llama-3.1-8b"
    curve = forecast("llama-3.1-8b", "h100-sxm", [1, 2, 4], 1024).to_xarray()
    assert curve.sizes == {"point_0": 3}


@pytest.mark.parametrize("name", ["roofline", "throughput", "latency", "breakdown", "bounds"])
def test_figures_show_themselves_and_go_to_files(two_by_two, tmp_path, name):
    drawing = getattr(two_by_two.plot, name)()
    assert "<svg" in drawing._repr_svg_()
    assert [path.suffix for path in drawing.save(tmp_path / name)] == [".png", ".svg"]


def test_a_reply_shows_itself():
    reply = decode(setup("llama-3.1-8b", "h100-sxm", engine="ideal"), 1000, 5)
    assert str(reply).startswith("5 tokens: the first after 0.01")
    assert reply._repr_html_().count("<tr>") == 1 + 4
    assert len(reply.to_dataframe()) == 4
    assert "<svg" in plot_reply(reply)._repr_svg_()


def test_the_accessor_and_the_function_are_the_same(two_by_two):
    assert two_by_two.plot == plot(two_by_two)


def test_a_figure_that_has_too_few_points_says_so(two_by_two):
    one = forecast("llama-3.1-8b", "h100-sxm")
    with pytest.raises(InputError, match="two batches"):
        one.plot.throughput()
    with pytest.raises(InputError, match="two contexts"):
        one.plot.latency()


def test_the_simulator_imports_no_reports():
    code = (
        "import sys; from roofcast.simulator import forecast; f = forecast('llama-3.1-8b', 'h100-sxm');"
        "f._repr_html_(); str(f);"
        "print([n for n in sys.modules if n.startswith(('roofcast.reports', 'matplotlib'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
