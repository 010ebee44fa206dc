"""Benchmarked kernels are counted as the operators a forecast counts, by hand here."""

from __future__ import annotations

import pytest

from roofcast.calibrate.counted import count_all, operators_of
from roofcast.calibrate.samples import Measurement, Task


def counts(kind: str, **facts: int) -> tuple[float, float]:
    """FLOPs and bytes of a task."""
    found = operators_of([Task(kind, {**facts, "dtype": "bf16"})])
    assert found
    return (
        float(sum(operator.flops for operator in found).item()),  # type: ignore[union-attr]
        float(sum(operator.bytes for operator in found).item()),  # type: ignore[union-attr]
    )


def test_a_matrix_product() -> None:
    """2 m n k FLOPs; weights n k, inputs m k and outputs m n, two bytes each."""
    flops, moved = counts("gemm", rows=4, outputs=8, inputs=16)
    assert flops == 2 * 4 * 8 * 16
    assert moved == 2 * (8 * 16 + 4 * 16 + 4 * 8)


def test_attention_over_a_cache() -> None:
    """Each of 3 sequences sees 101 entries of 2 heads, K and V; appends one; moves 8 heads of q, o."""
    flops, moved = counts(
        "attention", batch=3, context=100, query_heads=8, kv_heads=2, head_dim=64, window=0
    )
    assert flops == 3 * 101 * 8 * 2 * (64 + 64)
    assert moved == 2 * 3 * (101 * 2 * 128 + 2 * 128 + 8 * 128)


def test_a_window_bounds_what_attention_reads() -> None:
    sizes = {"batch": 1, "query_heads": 4, "kv_heads": 4, "head_dim": 64, "window": 128}
    assert counts("attention", context=127, **sizes) == counts("attention", context=5000, **sizes)


def test_a_sampler_reads_the_logits_as_fp32() -> None:
    assert counts("sampler", batch=5, vocabulary=1000) == (0.0, 5 * 1000 * 4)


def test_a_gate_reads_two_halves_and_writes_one() -> None:
    assert counts("activation", rows=3, width=100) == (0.0, 3 * 3 * 100 * 2)


def test_experts_count_the_matrices_they_touch() -> None:
    """8 experts, 2 a token, 2 tokens: 8 (1 - (3/4)^2) = 3.5 touched."""
    facts = {"rows": 2, "count": 8, "top_k": 2, "hidden": 64, "width": 32}
    found = operators_of([Task("experts", {**facts, "dtype": "bf16"})])
    by_name = {operator.name: operator for operator in found}
    assert set(by_name) == {"router", "experts_gate_up", "experts_down", "activation"}
    assert by_name["experts_down"].matrices == pytest.approx(3.5)
    assert by_name["experts_down"].weight_bytes == pytest.approx(3.5 * 64 * 32 * 2)
    assert by_name["router"].weight_bytes == 8 * 64 * 2


@pytest.mark.parametrize("kind", ["norm", "activation", "sampler"])
def test_small_kernels_are_launched(kind: str) -> None:
    facts = {"rows": 1, "batch": 1, "width": 64, "vocabulary": 64, "dtype": "bf16"}
    (operator,) = operators_of([Task(kind, facts)])
    assert operator.launches >= 1


def test_measurements_are_grouped_by_shape() -> None:
    tasks = [
        Task("gemm", {"rows": rows, "outputs": n, "inputs": 8, "dtype": "bf16"})
        for n in (16, 32)
        for rows in (1, 4)
    ]
    entries = [Measurement(t.kind, t.facts, (float(i + 1),)) for i, t in enumerate(tasks)]
    first, second = count_all(entries, ("rows",))
    assert first.measured_s.tolist() == [1.0, 2.0]
    assert first.operators[0].rows.tolist() == [1.0, 4.0]
    assert second.operators[0].weight_bytes == 2 * 32 * 8
