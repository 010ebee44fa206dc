"""Examples in docstrings say what they print; modules that measure are left to their own tests."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

PACKAGES = ("hardware", "simulator", "calibrate", "reports")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules() -> list[str]:
    found = []
    for package in PACKAGES:
        root = importlib.import_module(f"roofcast.{package}")
        found += [info.name for info in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")]
    return found


@pytest.mark.parametrize("name", modules())
def test_docstrings(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(name)
    failures, _ = doctest.testmod(module, optionflags=FLAGS)
    assert failures == 0
