"""Techniques against hand-worked ratios on the physical floor."""

from dataclasses import replace

import numpy as np
import pytest

from roofcast.hardware.catalog import find
from roofcast.simulator import setup, techniques
from roofcast.simulator.planning.speculation import Speculation, accepted

LLAMA = setup("llama-3.1-8b", "h100-sxm", profile="ideal")
MIXTRAL = setup("mixtral-8x7b", "h200-sxm", profile="ideal")
BATCHES = np.array([1.0, 8.0, 512.0])


def test_weights_in_fp8_halve_what_is_read_of_matrices() -> None:
    """6.98 of 15.01 GB are saved: matrices but lm_head; one user's step falls by as much."""
    effect = techniques.stored(LLAMA, BATCHES, 1000, "fp8")
    matrices = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    scales = -effect.memory_bytes / matrices
    assert scales == pytest.approx(1.0, rel=1e-3)  # a byte a weight, few scales
    read = float(sum(part.bytes for part in LLAMA.decode(1, 1000).operators))
    assert effect.ratio[0] == pytest.approx(1 - matrices / read, rel=0.01)
    assert np.all(effect.pays)
    assert effect.sequences[1] > effect.sequences[0]


def test_an_fp8_cache_pays_with_batch_and_doubles_what_fits() -> None:
    effect = techniques.cached(LLAMA, BATCHES, 8000, "fp8")
    assert np.all(np.diff(effect.ratio) < 0)
    assert effect.ratio[-1] == pytest.approx(0.5, abs=0.06)  # 512 x 1.05 GB of cache beside 15 GB
    assert effect.sequences[1] == pytest.approx(2 * effect.sequences[0], abs=1)


def test_lookup_drafts_cost_nothing_while_weights_bind() -> None:
    effect = techniques.drafted(LLAMA, BATCHES, 100, Speculation(3, 0.7, "ngram"))
    assert effect.memory_bytes == 0
    assert effect.ratio[0] == pytest.approx(1 / accepted(0.7, 3), rel=0.01)
    assert effect.ratio[-1] > 0.9  # 2048 rows are bound by arithmetic: four times the work for 2.53
    assert "breaks even at" in effect.note


def test_a_draft_model_adds_its_steps_and_its_weights() -> None:
    effect = techniques.drafted(LLAMA, BATCHES[:1], 100, Speculation(3, 0.7, "llama-3.2-1b"))
    small = setup("llama-3.2-1b", "h100-sxm", profile="ideal")
    step = LLAMA.decode(1, 100, 4).step_time_s + 3 * small.decode(1, 100).step_time_s
    assert effect.token_s[0] == pytest.approx(float(step) / accepted(0.7, 3))
    assert effect.memory_bytes == small.architecture.weight_bytes


def test_offloaded_experts_cross_pcie_every_step() -> None:
    """Two of eight experts of 352 MB in 32 layers, half of their bytes at 63 GB/s."""
    effect = techniques.offloaded(MIXTRAL, BATCHES[:1], 1000, 0.5)
    moved = 0.5 * 2 * 3 * 4096 * 14336 * 2 * 32
    plain = float(MIXTRAL.decode(1, 1000).step_time_s)
    assert effect.token_s[0] - plain == pytest.approx(moved / find("h200-sxm").pcie_bytes_per_s)
    assert not np.any(effect.pays)
    assert effect.memory_bytes == -0.5 * 8 * 3 * 4096 * 14336 * 2 * 32
    assert effect.sequences[1] > effect.sequences[0]


def test_prompts_hits_chunks_and_transfers() -> None:
    found = techniques.prompts(LLAMA, 32, 4000, 4096, 0.75, 1024)
    assert found.passes == 4
    assert found.hit_s < 0.4 * found.alone_s  # a quarter is computed, all of it attended to
    assert found.chunk_s < found.stall_s < 4 * found.chunk_s  # chunks repeat the decode step
    assert found.transfer_s == pytest.approx(4096 * 131_072 / 450e9)
    networked = replace(LLAMA, device=replace(LLAMA.device, network_bytes_per_s=5e10))
    sent = techniques.prompts(networked, 32, 4000, 4096, 0.75, 1024).transfer_s
    assert sent == pytest.approx(4096 * 131_072 / 5e10)
