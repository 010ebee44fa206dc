"""The ledger by part: sums that must agree with the whole, and numbers worked by hand."""

import numpy as np
import pytest

from roofcast.simulator.ledger import PartCount, parts
from roofcast.simulator.models import load
from roofcast.simulator.operators import Pass, operators
from roofcast.simulator.workload import Workload


def by_part(model: str) -> dict[str, PartCount]:
    return {each.part: each for each in parts(load(model))}


@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "gpt2", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b", "qwen3-30b-a3b"]
)
def test_parts_sum_to_the_model(model: str) -> None:
    architecture = load(model)
    own = [each for each in parts(architecture) if each.part != "next-token prediction"]
    assert sum(each.parameters for each in own) == architecture.parameters
    assert sum(each.resident_bytes for each in own) == pytest.approx(architecture.weight_bytes)
    step = operators(Pass(architecture, Workload.decode(1, 100)))
    read = sum(float(np.asarray(operator.weight_bytes)) for operator in step)
    tables = by_part(model)["embeddings"].read_bytes
    assert sum(each.read_bytes for each in own) - tables == pytest.approx(read)


def test_llama_by_hand() -> None:
    found = by_part("llama-3.1-8b")
    assert found["mlp"].parameters == 32 * 3 * 4096 * 14336
    assert found["attention"].parameters == 32 * 4096 * (4096 + 2 * 1024 + 4096)
    assert found["lm_head"].read_bytes == 128256 * 4096 * 2
    assert found["embeddings"].read_bytes == pytest.approx(4096 * 2)  # one row


def test_a_tied_head_is_held_once_and_read_whole() -> None:
    found = by_part("gpt2")
    assert found["lm_head"].parameters == 0
    assert found["lm_head"].read_bytes > 50257 * 768 * 2 - 1


def test_experts_stored_in_four_bits_beside_a_bf16_rest() -> None:
    found = by_part("gpt-oss-120b")
    assert found["experts"].formats == ("mxfp4",)
    assert "mxfp4" not in found["attention"].formats
    assert found["experts"].read_bytes == pytest.approx(found["experts"].resident_bytes * 4 / 128)
