"""Figures look as they did when someone last looked at them.

The tolerance lets through other versions of the font library, and nothing else: the same figure drawn
from data that differ by a quarter must fail it.
"""

import matplotlib as mpl
import pytest
from matplotlib.testing.compare import compare_images

from tests.reports.baselines import DRAWINGS, FOLDER, write

TOLERANCE = 6.0  # root mean square of 0 to 255 over all pixels


@pytest.fixture(autouse=True)
def without_a_screen():
    mpl.use("agg")


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_looks_as_it_did(name, tmp_path):
    drawn = write(name, tmp_path / f"{name}.png")
    assert compare_images(FOLDER / f"{name}.png", drawn, TOLERANCE) is None


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_change_is_noticed(name, tmp_path):
    drawn = write(name, tmp_path / f"{name}.png", scale=1.25)
    assert compare_images(FOLDER / f"{name}.png", drawn, TOLERANCE) is not None


@pytest.mark.parametrize("name", DRAWINGS)
def test_baselines_are_small(name):
    assert (FOLDER / f"{name}.png").stat().st_size < 60_000
