"""The memory ledger against start-up logs of real engines, hand counts and invariants."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError
from roofcast.simulator import Parallelism, setup, startup_log
from roofcast.simulator.kv_pages import (
    CacheKind,
    allocated_bytes,
    block_tokens,
    layer_slots,
)
from roofcast.simulator.memory import CACHE, Memory, rank_weights
from roofcast.simulator.memory_policy import Launch, Policy, find_policy
from roofcast.simulator.stages import stages

GIB = 2**30
SMALL = Launch(token_budget=2048, max_sequences=256)


def ledger(
    model: str, device: str, launch: Launch = Launch(), layout: Parallelism | None = None
) -> Memory:
    where = setup(model, device, profile="ideal", parallelism=layout)
    return replace(where, launch=launch).decode(1, 1000).memory


def vllm(device: str = "h100-sxm", launch: Launch = Launch()) -> Policy:
    return find_policy("vllm", launch, find(device))


# What users and logs report


@pytest.mark.parametrize(
    ("device", "launch", "tokens", "within"),
    [
        # vLLM 0.19, bf16, 0.90, 2048 tokens a step: "GPU KV cache size" on a 24 GB card
        ("rtx-4090", SMALL, 41_600, 0.01),
        # vLLM 0.2x: 0.92 of 79.25 GiB, 1.44 GiB of activations, "GPU KV cache size: 460,496 tokens"
        ("a100-sxm-80gb", replace(SMALL, utilisation=0.92), 460_496, 0.012),
        # "total_gpu_memory (79.14GiB) x 0.90 ... reserved for KV Cache is 54.93GiB"
        ("h100-sxm", SMALL, 54.93 * GIB / 131_072, 0.005),
    ],
)
def test_cache_of_llama_8b_as_vllm_reports_it(
    device: str, launch: Launch, tokens: float, within: float
) -> None:
    """Nothing of the log is used but the settings: every line is computed or assumed."""
    room = float(ledger("llama-3.1-8b", device, launch).cache_room_bytes)
    assert room // (16 * 131_072) * 16 == pytest.approx(tokens, rel=within)


@pytest.mark.parametrize(
    ("state", "token", "block"),
    [
        # "Setting attention block size to 528 tokens": Qwen3.5-9B, bf16 cache, 4 KV heads of 256
        (24_576 * 2 + 524_288 * 4, 4_096, 528),
        (24_576 * 2 + 524_288 * 4, 2_048, 1_056),  # the same with an fp8 cache
        # 784, "Padding mamba page size by 0.13%": Qwen3.5-27B
        (30_720 * 2 + 786_432 * 4, 4_096, 784),
    ],
)
def test_pages_of_hybrid_models_grow_to_hold_a_state(state: int, token: int, block: int) -> None:
    layers = Counter({CacheKind(token): 8, CacheKind(0.0, state_bytes=state): 24})
    assert block_tokens(layers, vllm()) == block


def test_a_state_takes_a_whole_page() -> None:
    state, token = 30_720 * 2 + 786_432 * 4, 4_096
    layers = Counter({CacheKind(0.0, state_bytes=state): 48})
    padded = Counter({CacheKind(0.0, state_bytes=state): 48, CacheKind(token): 16})
    alone = float(allocated_bytes(layers, np.array(0.0), vllm()))
    shared = float(allocated_bytes(padded, np.array(0.0), vllm()))
    assert shared / alone == pytest.approx(1.0013, abs=1e-4)


def test_cuda_graphs_may_not_fit_outside_a_share_that_is_too_large() -> None:
    tight = ledger("llama-3.1-8b", "rtx-4090", replace(SMALL, utilisation=0.99))
    assert tight.free_bytes > 0
    full = replace(
        tight,
        lines=tuple(
            replace(line, bytes=line.bytes + tight.free_bytes) if line.name == CACHE[0] else line
            for line in tight.lines
        ),
    )
    assert full.free_bytes == 0
    assert not full.fits  # graphs come on top of the share, and 1 % does not hold them


V0_LOG = """
INFO worker.py:266] the current vLLM instance can use total_gpu_memory (22.07GiB) x \
gpu_memory_utilization (0.90) = 19.86GiB
INFO worker.py:266] model weights take 14.99GiB; non_torch_memory takes 0.05GiB; PyTorch activation \
peak memory takes 0.22GiB; the rest of the memory reserved for KV Cache is 4.60GiB.
INFO executor_base.py:108] # CUDA blocks: 2356, # CPU blocks: 2048
"""

V1_LOG = """
(EngineCore pid=326) INFO [model_runner.py:407] Model loading took 15.0 GiB memory and 5.4 seconds
(EngineCore pid=326) INFO [gpu_worker.py:955] Free memory on device (78.84/79.25 GiB) on startup. \
Desired GPU memory utilization is (0.92, 72.91 GiB). Actual usage is 15.26 GiB for consumed memory \
(weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.
(EngineCore pid=326) INFO [gpu_worker.py:692] Available KV cache memory: 56.21 GiB
(EngineCore pid=326) INFO [kv_cache_utils.py:2464] GPU KV cache size: 460,496 tokens
"""


@pytest.mark.parametrize(
    ("log", "device", "tokens"),
    [(V0_LOG, "a10g", 2356 * 16), (V1_LOG, "a100-sxm-80gb", 460_496)],
)
def test_a_pasted_log_replaces_assumed_lines(log: str, device: str, tokens: int) -> None:
    read = startup_log.read(log)
    memory = ledger("llama-3.1-8b", device, read.applied(Launch()))
    assert float(memory.cache_room_bytes) / 131_072 == pytest.approx(tokens, rel=1e-3)
    origins = {line.name: line.origin for line in memory.lines}
    assert origins["activations"] == origins["weights, sharded"] == "measured"
    assert origins["KV cache"] == "computed"
    assert float(memory.of("logits")) == 0


def test_lines_of_a_log_add_up_to_its_own_budget() -> None:
    """Without the printed remainder the others give it: 19.86 - 14.99 - 0.05 - 0.22 = 4.60 GiB."""
    log = V0_LOG.replace("the rest of the memory reserved for KV Cache is 4.60GiB", "")
    memory = ledger("llama-3.1-8b", "a10g", startup_log.read(log).applied(Launch()))
    assert float(memory.cache_room_bytes) / GIB == pytest.approx(4.60, abs=0.01)


def test_a_log_that_says_nothing_and_one_that_contradicts() -> None:
    with pytest.raises(InputError, match="no memory line of a vLLM start-up log"):
        startup_log.read("INFO: Uvicorn running on http://0.0.0.0:8000")
    with pytest.raises(InputError, match=r"utilisation of 0\.9, not 0\.8"):
        startup_log.read(V0_LOG).applied(Launch(utilisation=0.8))


# Ranks


def rank_cache(model: str, layout: Parallelism) -> float:
    networked = replace(find("h200-sxm"), network_bytes_per_s=5e10)
    where = setup(model, networked, profile="ideal", parallelism=layout)
    return float(where.decode(1, 1000).memory.cache_bytes)


def test_kv_heads_are_cut_over_ranks_and_then_replicated() -> None:
    one, eight, sixteen = (rank_cache("llama-3.1-70b", Parallelism(n)) for n in (1, 8, 16))
    assert eight == one / 8
    assert sixteen == eight  # eight KV heads: a ninth rank holds a copy


def test_latents_are_replicated_on_every_tensor_rank() -> None:
    assert rank_cache("deepseek-v3", Parallelism(8)) == rank_cache("deepseek-v3", Parallelism())


def test_attention_groups_cut_the_batch_not_the_latents() -> None:
    spread = setup("deepseek-v3", "h200-sxm", profile="ideal", parallelism=Parallelism(1, 1, 8, 8))
    whole = setup("deepseek-v3", "h200-sxm", profile="ideal", parallelism=Parallelism(8, 1, 8, 1))
    cut, replicated = (each.decode(64, 1000).memory.cache_bytes for each in (spread, whole))
    assert float(cut) == float(replicated) / 8


def test_replicated_weights_are_those_no_rank_cuts() -> None:
    memory = ledger("llama-3.1-70b", "h100-sxm", layout=Parallelism(8))
    norms = 2 * (2 * 80 + 1) * 8192  # two a layer and the last, in bf16
    assert float(memory.of("weights, replicated")) == norms
    assert float(memory.of("weights, sharded")) == pytest.approx((70_553_706_496 * 2 - norms) / 8)


def test_stages_share_the_weights_and_the_fullest_counts() -> None:
    where = setup("llama-3.1-70b", "h100-sxm", profile="ideal", parallelism=Parallelism(1, 3))
    work = where.decode(1, 1000).work
    parts = [sum(rank_weights(stage)) for stage in stages(work)]
    assert sum(parts) == pytest.approx(where.architecture.weight_bytes)
    memory = where.decode([1, 3], 1000).memory
    assert np.all(memory.weight_bytes == max(parts))


def test_a_tied_head_is_held_twice_where_first_and_last_stage_differ() -> None:
    where = setup("llama-3.2-1b", "h100-sxm", profile="ideal", parallelism=Parallelism(1, 2))
    parts = [sum(rank_weights(stage)) for stage in stages(where.decode(1, 10).work)]
    assert sum(parts) - where.architecture.weight_bytes == 128_256 * 2048 * 2


# Pages


def kinds_of(*layers: tuple[int | None, int]) -> Counter[CacheKind]:
    return Counter({CacheKind(1.0, window): count for window, count in layers})


def test_pages_are_whole() -> None:
    held = allocated_bytes(kinds_of((None, 1)), np.array([1.0, 16, 17]), vllm())
    assert held.tolist() == [16, 16, 32]


def test_what_a_window_holds_depends_on_the_engine() -> None:
    tokens = np.array([100.0, 1024, 50_000])
    layers = kinds_of((1024, 1))
    pages = vllm()
    assert allocated_bytes(layers, tokens, pages).tolist() == [112, 1024, 65 * 16]
    ring, full = replace(pages, windows="ring"), replace(pages, windows="full")
    assert allocated_bytes(layers, tokens, ring).tolist() == [112, 1024, 1024]
    assert allocated_bytes(layers, tokens, full).tolist() == [112, 1024, 50_000]


def test_bytes_read_and_bytes_allocated_are_two_numbers() -> None:
    uniform = replace(
        setup("gemma-3-27b", "h100-sxm", profile="ideal"), launch=Launch(windows="full")
    )
    paged = replace(uniform, launch=Launch())
    step, frugal = uniform.decode(1, 32_000), paged.decode(1, 32_000)
    assert float(step.kv_read_bytes) == float(frugal.kv_read_bytes)
    assert float(step.memory.cache_bytes) > 4 * float(frugal.memory.cache_bytes)
    assert float(frugal.memory.cache_bytes) > float(frugal.kv_read_bytes)


def test_groups_of_layers_are_padded() -> None:
    """Gemma-3-27B: 52 layers with a window in six groups of ten, 10 without in one."""
    layers = kinds_of((1024, 52), (None, 10))
    assert sorted(layer_slots(layers, vllm()).values()) == [10, 60]
    even = kinds_of((128, 18), (None, 18))  # gpt-oss-120b: nothing is lost
    assert list(layer_slots(even, vllm()).values()) == [18, 18]
    close = kinds_of((4096, 24), (None, 23))  # as large as the commonest where that is close
    assert sorted(layer_slots(close, vllm()).values()) == [24, 24]
    assert layer_slots(layers, replace(vllm(), grouped=False)) == dict(layers)


# The ledger as a whole


SPREAD = {
    tensor: setup("gpt-oss-20b", "h100-sxm", profile="ideal", parallelism=Parallelism(tensor))
    for tensor in (1, 2, 4)
}


@settings(deadline=None)
@given(st.integers(1, 4096), st.integers(0, 60_000), st.sampled_from(sorted(SPREAD)))
def test_more_sequences_and_tokens_never_hold_less(batch: int, context: int, tensor: int) -> None:
    sizes = ([batch, batch + 1, batch], [context, context, context + 1])
    memory = SPREAD[tensor].decode(*sizes).memory
    total = np.broadcast_to(memory.total_bytes, (3,))
    assert total[1] >= total[0]
    assert total[2] >= total[0]
    assert np.all(memory.fits == ((memory.free_bytes >= 0) & (total <= memory.capacity_bytes)))
    assert sum(line.bytes for line in memory.lines) == pytest.approx(total)


def test_every_line_says_where_it_comes_from() -> None:
    for model, device, layout in [
        ("deepseek-v3", "h200-sxm", Parallelism(8, 1, 8)),
        ("qwen3-next-80b-a3b", "mi300x", Parallelism(2)),
        ("llama-3.1-8b", "rtx-4090", Parallelism(2)),
    ]:
        for engine in ("vllm", "sglang", "trtllm", "torch", "llama.cpp"):
            where = setup(model, device, profile="ideal", parallelism=layout)
            memory = replace(where, kernels=engine).decode(1, 100).memory
            assert all(line.reason for line in memory.lines), engine
            assert {line.origin for line in memory.lines} == {"computed", "assumed"}


def test_engines_divide_memory_their_own_way() -> None:
    where = setup("llama-3.1-8b", "h100-sxm", profile="ideal")
    rooms = {
        engine: float(replace(where, kernels=engine).decode(1, 100).memory.cache_room_bytes)
        for engine in ("vllm", "sglang", "trtllm", "torch")
    }
    capacity = find("h100-sxm").memory_bytes
    # SGLang: 512 MB + 8192 x 1.5 MB + 256 x 2 MB are left aside
    reserve = 0.512e9 + 8192 * 1.5e6 + 256 * 2e6
    assert rooms["sglang"] == pytest.approx(capacity - reserve - 16_060_522_496, rel=1e-6)
    assert rooms["torch"] == max(rooms.values())


def test_a_cpu_holds_weights_and_cache_only() -> None:
    cpu = Accelerator(
        id="cpu", name="CPU", vendor="None", kind="cpu", memory_capacity_bytes=64 * 10**9,
        memory_bandwidth_bytes_per_s=1e11, peak_flops_per_s={"bf16": 1e12},
    )  # fmt: skip
    lines = setup("smollm2-360m", cpu, profile="ideal").decode(1, 100).memory.lines
    assert {line.name for line in lines} == {
        "weights, sharded", "weights, replicated", "KV cache", "recurrent state", "activations",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"utilisation": 1.2}, "utilisation must be above 0 and at most 1, not 1.2"),
        ({"utilisation": 0.0}, "utilisation must be above 0"),
        ({"token_budget": 0}, "token_budget must be at least 1, not 0"),
        ({"block_tokens": -16}, "block_tokens must be at least 1"),
    ],
)
def test_a_launch_that_cannot_be(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Launch(**options)  # type: ignore[arg-type]
