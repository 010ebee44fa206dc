"""Layer times of one model turned into kernels: a fit recovers the parameters they were made from."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from roofcast.calibrate.kernel_tables.layer_times import (
    ATTENTION,
    LAYERS,
    profile_of,
    read_profiled,
)
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import ideal
from roofcast.simulator.models import load

CARD = find("rtx-4090")
GPU, MODEL = "card", "some/Llama-3.1-8B"
SHAPES = {"qkv_proj": (6144, 4096), "o_proj": (4096, 4096), "gate_up_proj": (28672, 4096),
          "down_proj": (4096, 14336), "lm_head": (128256, 4096)}  # fmt: skip
REACHED, PEAK, FIXED_S = 0.9, 0.8, 4e-6


def write_tables(folder: Path) -> None:
    """Products at 90 % of the bandwidth and 80 % of the peak, joined in squares; a plain attention."""
    bandwidth, peak = CARD.memory_bandwidth_bytes_per_s, CARD.peak_flops_per_s["bf16"]
    layers = ["gpu,model,dtype,tp,profile,layer,m,unit_of_m,latency_us"]
    for name, (n, k) in SHAPES.items():
        for m in (1, 4, 16, 64, 128, 256, 512, 1024, 2048):
            moved = 2 * (n * k + m * (n + k)) / (REACHED * bandwidth)
            time = FIXED_S + np.hypot(moved, 2 * m * n * k / (PEAK * peak))
            layers.append(f"{GPU},{MODEL},bf16,1,v1,{name},{m},tokens,{time * 1e6}")
    attention = [
        "gpu,model,dtype,tp,profile,prefill_chunk,kv_prefill,n_decode,kv_decode,latency_us"
    ]
    for batch in (1, 8, 32, 64, 128, 256):
        for context in (512, 2048, 4096, 8192, 16384):
            time = FIXED_S + batch * (context + 1) * 8 * 2 * 128 * 2 / (REACHED * bandwidth)
            attention.append(f"{GPU},{MODEL},bf16,1,v1,0,0,{batch},{context},{time * 1e6}")
    for name, rows in ((LAYERS, layers), (ATTENTION, attention)):
        (folder / name).write_bytes(gzip.compress("\n".join(rows).encode()))


def test_a_fit_recovers_what_the_times_were_made_from(tmp_path: Path) -> None:
    write_tables(tmp_path)
    base = ideal(CARD.id)
    made = profile_of(read_profiled(tmp_path, GPU, MODEL), load("llama-3.1-8b"), CARD, base)
    assert made.value("gemm.bandwidth_efficiency.bf16", 0) == pytest.approx(REACHED, rel=0.02)
    assert made.value("gemm.compute_efficiency.bf16", 0) == pytest.approx(PEAK, rel=0.02)
    assert made.value("gemm.compute_efficiency", 0) == made.value("gemm.compute_efficiency.bf16", 0)
    # one group of query heads can't tell bytes from FLOPs: only their sum is known
    assert [errors.p90_ape < 0.01 for errors in made.held_out] == [True, True]


def test_a_gpu_without_tables(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with pytest.raises(InputError, match=r"holds no layer times of some/.* on other"):
        read_profiled(tmp_path, "other", MODEL)
