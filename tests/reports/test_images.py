"""Figures look as they did when someone last looked at them.

Two measures, because either alone is blind: the root mean square over all pixels sees a curve that
moved, and the means of small blocks see one label that went missing. Both let through other versions
of the font library, and nothing else: the same figure drawn from data that differ by a quarter must
fail, and so must one that lost its shortest label.
"""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.testing.compare import compare_images
from PIL import Image

from roofcast.reports.figures import style
from tests.reports.baselines import DPI, DRAWINGS, FOLDER, write

TOLERANCE = 6.0  # root mean square of 0 to 255 over all pixels
BLOCK, BLOCK_TOLERANCE = 12, 10.0  # pixels a side; difference of means of 0 to 255


@pytest.fixture(autouse=True)
def without_a_screen():
    mpl.use("agg")


def blocks(path):
    """Means over squares of the image, in grey."""
    pixels = np.asarray(Image.open(path).convert("L"), dtype=float)
    rows, columns = (size // BLOCK for size in pixels.shape)
    whole = pixels[: rows * BLOCK, : columns * BLOCK]
    return whole.reshape(rows, BLOCK, columns, BLOCK).mean(axis=(1, 3))


def differs(name, drawn) -> bool:
    baseline = FOLDER / f"{name}.png"
    if compare_images(baseline, drawn, TOLERANCE) is not None:
        return True
    return float(np.abs(blocks(baseline) - blocks(drawn)).max()) > BLOCK_TOLERANCE


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_looks_as_it_did(name, tmp_path):
    assert not differs(name, write(name, tmp_path / f"{name}.png"))


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_change_is_noticed(name, tmp_path):
    assert differs(name, write(name, tmp_path / f"{name}.png", scale=1.25))


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_missing_label_is_noticed(name, tmp_path):
    path = tmp_path / f"{name}.png"
    with style.applied():
        figure = DRAWINGS[name](1.0)
        texts = [text for axes in figure.axes for text in axes.texts if len(text.get_text()) > 3]
        min(texts, key=lambda text: len(text.get_text())).set_visible(False)
        figure.savefig(path, dpi=DPI)
    assert differs(name, path)


@pytest.mark.parametrize("name", DRAWINGS)
def test_baselines_are_small(name):
    assert (FOLDER / f"{name}.png").stat().st_size < 60_000
