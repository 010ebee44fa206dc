"""The kernel fit against tables simulated from known parameters, and the profiles it ships."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from roofcast.calibrate.kernel_tables import calibrate_kernels, compare_forms, workloads
from roofcast.calibrate.kernel_tables.forms import form, plain
from roofcast.calibrate.kernel_tables.groups import Group
from roofcast.calibrate.kernel_tables.kernel_fit import fit_group, profile_with
from roofcast.calibrate.kernel_tables.table import Table
from roofcast.calibrate.kernel_tables.workloads import Rows
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import UnknownNameError
from roofcast.simulator.engines import find_engine
from roofcast.simulator.roofline import Roofs, operator_time

H200 = find("h200-sxm")
VLLM = find_engine("vllm")
GEMM = {
    "fixed_s": 2e-6,
    "bandwidth_efficiency": 0.8,
    "compute_efficiency": 0.7,
    "loop_s": 4e-6,
    "loop_exponent": 0.5,
    "loop_rows_exponent": 0.6,
}
ATTENTION = {
    "fixed_s": 3e-6,
    "bandwidth_efficiency": 0.85,
    "compute_efficiency": 0.05,
    "loop_s": 5e-6,
    "loop_exponent": 0.4,
    "block_s": 3e-6,
}


def products() -> Table:
    rows = [
        (m, n, k)
        for m in (1, 4, 16, 64, 256, 1024, 4096)
        for n in (256, 1024, 4096, 16384, 65536)
        for k in (128, 512, 2048, 8192, 16384)
    ]
    m, n, k = np.array(rows, dtype=float).T
    return Table({"m": m, "n": n, "k": k})


def caches() -> Table:
    rows = [
        (batch, kv_heads, group, context)
        for batch in (1, 4, 16, 64, 256, 1024)
        for kv_heads in (1, 2, 4, 8)
        for group in (2, 32)
        for context in (16, 128, 1024, 8192, 65536)
    ]
    batch, kv_heads, group, context = np.array(rows, dtype=float).T
    constant = np.ones(len(batch))
    return Table({
        "batch": batch, "kv_heads": kv_heads, "heads": group * kv_heads, "window": 0 * constant,
        "head_dim": 128 * constant, "kv_tokens": context,
    })  # fmt: skip


def simulated(
    kind: str, table: Table, build: workloads.Builder, truth: dict[str, float], suffix: str
) -> Group:
    dtype = "bfloat16" if kind == "gemm" else "bf16"
    operators = build(table, dtype, VLLM)
    roofs = Roofs(H200, profile_with(form(kind), suffix, truth, H200.id))
    exact = sum(operator_time(operator, roofs).total_s for operator in operators)
    noise = np.random.default_rng(0).normal(0, 0.04, len(table))
    cached = np.asarray(operators[0].kv_read_bytes + operators[0].weight_bytes)
    shapes = np.arange(len(table)) // 5
    return Group(kind, suffix, Rows(operators, exact * np.exp(noise), shapes, cached), "", "test")


@pytest.mark.parametrize(
    ("kind", "truth"), [("gemm", GEMM), ("attention", ATTENTION)], ids=["gemm", "attention"]
)
def test_a_fit_recovers_the_parameters_it_was_simulated_from(
    kind: str, truth: dict[str, float]
) -> None:
    if kind == "gemm":
        group = simulated(kind, products(), workloads.gemm, truth, ".bf16")
    else:
        group = simulated(kind, caches(), workloads.attention, truth, ".attention.bf16")
    found = fit_group(group, H200, form(kind)).found
    for name, value in truth.items():
        estimate = found[name]
        assert estimate.status == "ok", name
        assert estimate.standard_error is not None
        assert abs(estimate.value - value) < 3.5 * estimate.standard_error, name
        assert estimate.standard_error < 0.25 * value, name


def test_a_term_the_data_does_not_need_goes() -> None:
    """Products simulated without a loop are fitted without one."""
    truth = {"fixed_s": 5e-6, "bandwidth_efficiency": 0.8, "compute_efficiency": 0.7}
    group = simulated("gemm", products(), workloads.gemm, truth, ".bf16")
    fitted = fit_group(group, H200, form("gemm"))
    assert not any(name.startswith("loop") for name in fitted.values)
    assert not any("loop" in name for name in fitted.parameters())


def test_the_plain_roofline_misses_what_the_loop_explains() -> None:
    group = simulated("gemm", products(), workloads.gemm, GEMM, ".bf16")
    before = fit_group(group, H200, plain("gemm")).errors(group.rows, H200)
    after = fit_group(group, H200, form("gemm")).errors(group.rows, H200)
    assert after.median_ape < 0.04
    assert before.median_ape > 3 * after.median_ape


def test_rows_faster_than_the_memory_are_left_out_and_counted() -> None:
    """A table whose every seventh row is three times too fast, as a warm cache would be."""
    truth = {**GEMM, "bandwidth_efficiency": 0.9}
    group = simulated("gemm", products(), workloads.gemm, truth, ".bf16")
    measured = group.rows.measured_s.copy()
    measured[::7] /= 3
    rows = Rows(group.rows.operators, measured, group.rows.shapes, group.rows.cached_bytes)
    fitted = fit_group(Group("gemm", ".bf16", rows, "", "test"), H200, form("gemm"))
    assert fitted.impossible > 0
    note = fitted.parameters()["gemm.fixed_s.bf16"].note
    assert f"{fitted.impossible} faster than the memory allows" in note


def write_tables(folder: Path) -> None:
    """A folder with one engine's products, in the tidy layout."""
    group = simulated("gemm", products(), workloads.gemm, GEMM, ".bf16")
    table = products()
    path = folder / "gemm_h200_sxm.csv.gz"
    with gzip.open(path, "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["gpu", "backend", "version", "kernel_source", "dtype", "m", "n", "k", "latency_us"]
        )
        shapes = zip(table["m"], table["n"], table["k"], group.rows.measured_s, strict=True)
        for m, n, k, seconds in shapes:
            rows.writerow(["h200_sxm", "vllm", "1.0", "usual", "bfloat16", m, n, k, seconds * 1e6])


def test_a_folder_of_tables_becomes_a_profile(tmp_path: Path) -> None:
    write_tables(tmp_path)
    (profile,) = calibrate_kernels(tmp_path, H200)
    assert (profile.device, profile.engine) == ("h200-sxm", "vllm")
    reach = profile.parameters["gemm.bandwidth_efficiency.bf16"]
    assert reach.origin == "fitted"
    assert reach.value == pytest.approx(0.8, rel=0.1)
    # formats nobody measured take the ordinary one's, and say so
    assert profile.parameters["gemm.bandwidth_efficiency"].origin == "transferred"
    assert profile.parameters["host.step_s"].origin == "assumed"
    assert profile.held_out[0].median_ape < 0.06


def test_an_engine_without_tables_is_named(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with pytest.raises(UnknownNameError, match="vllm"):
        calibrate_kernels(tmp_path, H200, "sglang")


def test_forms_are_compared_on_shapes_the_fit_has_not_seen(tmp_path: Path) -> None:
    write_tables(tmp_path)
    compared = {entry.scope: entry for entry in compare_forms(tmp_path, H200)}
    everything = compared["all"]
    assert everything.after.rows == len(products())
    assert everything.after.median_ape < everything.before.median_ape / 2
    assert compared["decode"].after.rows < everything.after.rows
