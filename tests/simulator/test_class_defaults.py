"""What a config leaves out means what the transformers classes say it means."""

from __future__ import annotations

import pytest

from roofcast.simulator.families.registry import families
from tests.simulator import class_defaults


@pytest.mark.filterwarnings("ignore")
def test_the_file_says_what_the_classes_say() -> None:
    transformers = pytest.importorskip("transformers")
    if transformers.__version__ != class_defaults.VERSION:
        pytest.skip(f"compares with transformers {class_defaults.VERSION} only")
    assert class_defaults.stored() == class_defaults.from_transformers()


def test_families_outside_transformers_lean_on_a_class_that_is_there() -> None:
    known = class_defaults.stored()
    for model_type, family in families().items():
        assert (family.defaults_of or model_type) in known or family.defaults, model_type
