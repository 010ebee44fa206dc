"""Small result files of every format: tests/data/benchmark_files."""

from pathlib import Path

import pytest

from roofcast.calibrate.benchmark_files.reader import read

DATA = Path(__file__).parents[2] / "data" / "benchmark_files"


@pytest.fixture(scope="session")
def data() -> Path:
    return DATA


@pytest.fixture
def records(data):
    """The records of one of the small files."""
    return lambda name: read(data / name)
