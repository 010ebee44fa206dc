"""FLOPs and bytes of one pass, worked by hand on a small model."""

from dataclasses import replace

import numpy as np
import pytest

from roofcast.hardware.profile import ideal
from roofcast.simulator.api import setup
from roofcast.simulator.operators import Operator, Pass, operators, share
from roofcast.simulator.workload import Parallelism, Workload
from tests.simulator.machines import HEADS, KV, WIDE, D, H, V, model


def by_name(work: Pass) -> dict[str, Operator]:
    found = operators(work)
    assert len({operator.name for operator in found}) == len(found)
    return {operator.name: operator for operator in found}


def total(work: Pass, field: str) -> float:
    return float(sum(getattr(operator, field) for operator in operators(work)))


def test_matrix_flops_are_two_per_weight_and_token() -> None:
    ops = by_name(Pass(model(), Workload.decode(3, 100)))
    assert ops["qkv_proj"].flops == 2 * 3 * (2 * H * (HEADS + 2 * KV) * D)
    assert ops["o_proj"].flops == 2 * 3 * (2 * H * HEADS * D)
    assert ops["gate_up_proj"].flops == 2 * 3 * (2 * 2 * H * WIDE)
    assert ops["lm_head"].flops == 3 * (2 * H * V)


def test_attention_covers_the_context_and_the_new_token() -> None:
    attention = by_name(Pass(model(), Workload.decode(3, 100)))["attention"]
    assert attention.flops == 2 * 3 * (2 * HEADS * (D + D) * 101)
    # K and V are read once per KV head, not per query head
    assert attention.kv_read_bytes == 2 * 3 * (101 * KV * 2 * D * 2)
    assert attention.kv_write_bytes == 2 * 3 * (KV * 2 * D * 2)


def test_weights_are_read_once_however_large_the_batch() -> None:
    small, large = Pass(model(), Workload.decode(1, 64)), Pass(model(), Workload.decode(64, 64))
    assert total(small, "weight_bytes") == total(large, "weight_bytes")
    # everything but the embedding table, of which a step reads a row per token
    assert total(small, "weight_bytes") == 2 * (model().parameters - V * H)


def test_a_window_bounds_reads_not_writes() -> None:
    work = Pass(model(window=128), Workload.decode(1, [64, 127, 4000]))
    attention = by_name(work)["window_attention"]
    entry = 2 * KV * 2 * D * 2
    assert attention.kv_read_bytes.tolist() == [65 * entry, 128 * entry, 128 * entry]
    assert np.all(attention.kv_write_bytes == entry)


def test_kv_dtype_is_apart_from_weight_dtype() -> None:
    bf16 = Pass(model(), Workload.decode(4, 1000))
    fp8 = Pass(model(), Workload.decode(4, 1000), kv_dtype="fp8")
    assert total(fp8, "kv_read_bytes") == total(bf16, "kv_read_bytes") / 2
    assert total(fp8, "weight_bytes") == total(bf16, "weight_bytes")


def test_experts_read_what_the_batch_touches_and_compute_top_k() -> None:
    ops = by_name(Pass(model(experts=True), Workload.decode([1, 2, 1000], 10)))
    one = 2 * H * WIDE * 2  # gate and up of one expert in bf16
    touched = [2.0, 8 * (1 - 0.75**2), 8.0]
    assert ops["experts_gate_up"].weight_bytes == pytest.approx([2 * one * n for n in touched])
    assert ops["experts_gate_up"].flops == pytest.approx(
        [2 * tokens * 2 * (2 * 2 * H * WIDE) for tokens in (1, 2, 1000)]
    )


def test_prefill_is_causal() -> None:
    prompt = by_name(Pass(model(), Workload.prefill(1, 100)))
    assert prompt["attention"].flops == 2 * (2 * HEADS * 2 * D) * (100 * 101 / 2)
    assert prompt["qkv_proj"].flops == 2 * 100 * (2 * H * (HEADS + 2 * KV) * D)
    # only the last position is turned into logits
    assert prompt["lm_head"].flops == 2 * H * V


def test_prefill_flops_equal_the_steps_they_replace() -> None:
    work = Pass(model(), Workload.prefill(1, 50), sampled=False)
    steps = Pass(model(), Workload.decode(1, np.arange(50)), sampled=False)
    body = [name for name in by_name(work) if name != "lm_head"]
    for name in body:
        stepped = np.sum(np.broadcast_to(by_name(steps)[name].flops, 50))
        assert by_name(work)[name].flops == pytest.approx(stepped)


def test_tensor_parallel_ranks_share_the_work_and_replicate_kv_heads() -> None:
    whole = by_name(Pass(model(), Workload.decode(4, 100)))
    half = by_name(Pass(model(), Workload.decode(4, 100), Parallelism(tensor=2)))
    eighth = by_name(Pass(model(), Workload.decode(4, 100), Parallelism(tensor=8)))
    assert half["gate_up_proj"].weight_bytes == whole["gate_up_proj"].weight_bytes / 2
    assert half["attention"].kv_read_bytes == whole["attention"].kv_read_bytes / 2
    # two KV heads on eight ranks: every rank keeps one
    assert eighth["attention"].kv_read_bytes == whole["attention"].kv_read_bytes / 2
    assert eighth["attention"].flops == whole["attention"].flops / 8


def test_all_reduce_moves_ring_bytes_twice_a_layer_and_once_behind_the_embedding() -> None:
    reduced = by_name(Pass(model(), Workload.decode(4, 100), Parallelism(tensor=4)))["all_reduce"]
    assert reduced.launches == 2 * 2 + 1
    assert reduced.link_bytes == 5 * (4 * H * 2) * 2 * 3 / 4
    assert "all_reduce" not in by_name(Pass(model(), Workload.decode(4, 100)))


def test_pipeline_stages_cut_the_batch_into_microbatches() -> None:
    work = Pass(model(), Workload.decode([1, 8], 100), Parallelism(pipeline=4))
    assert work.microbatches.tolist() == [1, 4]
    assert work.tokens.tolist() == [1, 2]


def test_expert_parallel_ranks_hold_whole_experts() -> None:
    one = by_name(Pass(model(experts=True), Workload.decode(1000, 10)))
    four = by_name(
        Pass(model(experts=True), Workload.decode(1000, 10), Parallelism(tensor=4, expert=4))
    )
    # every expert is touched, so each rank reads a quarter; the busiest rank has more than a quarter of
    # the tokens: 500 routed to each on average, and 1.05 deviations more on the fullest of four
    assert four["experts_down"].weight_bytes == pytest.approx(one["experts_down"].weight_bytes / 4)
    more = four["experts_down"].flops / (one["experts_down"].flops / 4)
    assert more == pytest.approx(1 + 1.05 * np.sqrt(500 * 0.75) / 500, rel=1e-3)


def test_share_of_uneven_splits_is_the_busiest_rank() -> None:
    assert share(10, 4) == 3 / 10
    assert share(1, 8) == 1


def test_shapes_broadcast_without_a_loop() -> None:
    work = Pass(model(experts=True), Workload.decode(np.ones((5, 1)), np.arange(7)[None, :]))
    assert work.workload.shape == (5, 7)
    assert by_name(work)["attention"].flops.shape == (5, 7)


def test_loops_and_blocks_are_those_of_one_rank() -> None:
    """o_proj walks the columns its rank holds; attention has one block per sequence and KV head."""
    whole = by_name(Pass(model(), Workload.decode(3, 100)))
    half = by_name(Pass(model(), Workload.decode(3, 100), Parallelism(tensor=2)))
    assert whole["o_proj"].depth == HEADS * D
    assert half["o_proj"].depth == HEADS * D / 2
    assert half["gate_up_proj"].depth == whole["gate_up_proj"].depth == H
    assert whole["attention"].depth == 101  # not twice, though there are two layers
    assert whole["attention"].blocks == 2 * 3 * KV
    assert half["attention"].blocks == 2 * 3 * KV / 2
    # a row-parallel product reads a part of its input and writes a whole output
    assert half["o_proj"].activation_bytes == 2 * 3 * (HEADS * D / 2 + H) * 2


def test_engines_that_read_a_cache_per_query_head_move_more_but_the_floor_stays() -> None:
    """Llama-3.1-8B has four query heads a KV head: 1 + 0.25 x 3 reads, of which physics needs one."""
    once, again = (
        setup("llama-3.1-8b", "h100-sxm-80gb", profile=replace(ideal("h100-sxm-80gb"), engine=name))
        for name in ("vllm", "vllm-0")
    )
    packed, unpacked = once.decode(64, 2048), again.decode(64, 2048)
    assert unpacked.kv_read_bytes / packed.kv_read_bytes == pytest.approx(1.75)
    assert unpacked.floor_s == pytest.approx(packed.floor_s)
