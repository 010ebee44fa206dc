"""Fixtures for tests that run torch."""

import pytest


@pytest.fixture(scope="module")
def one_thread():
    """Torch on one thread: small tensors gain nothing from more, and spin when the machine is busy."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
