"""What a table can't tell comes from relatives, not from where a search happened to stop."""

from __future__ import annotations

import numpy as np
import pytest

from roofcast.calibrate.kernel_tables import workloads
from roofcast.calibrate.kernel_tables.forms import form
from roofcast.calibrate.kernel_tables.groups import Group
from roofcast.calibrate.kernel_tables.identified import doubtful, settled
from roofcast.calibrate.kernel_tables.kernel_fit import KernelFit, fit_group
from roofcast.calibrate.kernel_tables.steps import with_steps_of
from roofcast.calibrate.kernel_tables.table import Table
from roofcast.hardware.profile import Band, HeldOut, Parameter, Profile
from roofcast.simulator.engines import Engine
from roofcast.simulator.passes import Operator
from tests.calibrate.test_kernel_calibration import GEMM, H200, products, simulated


def few_rows() -> Table:
    """Products of one row: 2 FLOPs a byte of fp8, where an H200's ridge is at 412."""
    table = products()
    return table.where(table["m"] == 1)


def in_fp8(table: Table, dtype: str, engine: Engine) -> tuple[Operator, ...]:
    return workloads.gemm(table, "fp8", engine)


def fitted(table: Table, suffix: str, truth: dict[str, float] = GEMM) -> KernelFit:
    build = in_fp8 if suffix == ".fp8" else workloads.gemm
    return fit_group(simulated("gemm", table, build, truth, suffix), H200, form("gemm"))


def test_rows_far_from_the_peak_take_the_peak_that_relatives_reach() -> None:
    rich, poor = fitted(products(), ".bf16"), fitted(few_rows(), ".fp8")
    assert doubtful(rich) == ()
    assert "compute_efficiency" in doubtful(poor)
    kept, settled_ = settled([rich, poor], [rich, poor], H200)
    assert kept is rich
    parameter = settled_.parameters()["gemm.compute_efficiency.fp8"]
    assert parameter.origin == "transferred"
    assert parameter.standard_error is None
    assert parameter.value == pytest.approx(GEMM["compute_efficiency"], rel=0.1)
    assert "gemm.bf16" in parameter.note
    # what the rows do tell stays theirs
    reach = settled_.parameters()["gemm.bandwidth_efficiency.fp8"]
    assert reach.origin == "fitted"
    assert reach.value == pytest.approx(GEMM["bandwidth_efficiency"], rel=0.1)


def test_an_offer_that_contradicts_the_rows_is_refused() -> None:
    """Kernels at the full peak beside a relative at a twentieth of it."""
    relative = fitted(products(), ".bf16", {**GEMM, "compute_efficiency": 0.05})
    own = fitted(products(), ".fp8", {**GEMM, "compute_efficiency": 1.0})
    (after,) = settled([own], [own, relative], H200)
    assert after.values["compute_efficiency"] > 0.8


def test_no_fit_leaves_the_floor() -> None:
    """Rows faster than the device's peak allows: efficiencies stop at 1, so forecasts stay possible."""
    group = simulated("gemm", products(), workloads.gemm, GEMM, ".bf16")
    rows = workloads.Rows(
        group.rows.operators, group.rows.measured_s / 3, group.rows.shapes, group.rows.cached_bytes
    )
    found = fit_group(Group("gemm", ".bf16", rows, "", "test"), H200, form("gemm"))
    assert found.values["compute_efficiency"] <= 1.0
    assert found.values["bandwidth_efficiency"] <= 1.0
    floor = rows.operators[0].flops / H200.peak_flops_per_s["bf16"]
    assert np.all(found.predicted(rows, H200) >= floor)


def profile(**changed: object) -> Profile:
    known = {"name": "x", "device": "h200-sxm", "engine": "vllm", "origin": "kernel tables of X"}
    return Profile(**{**known, **changed})  # type: ignore[arg-type]


def test_new_kernels_keep_the_steps_that_were_measured() -> None:
    reach = "gemm.bandwidth_efficiency.bf16"
    kernels = profile(
        parameters={
            reach: Parameter(0.8, "1", "fitted"),
            "host.step_s": Parameter(2e-4, "s", "assumed"),
        },
        held_out=(HeldOut("kernels of gemm.bf16, other half", 10, 0.05, 0.1, 0.0),),
    )
    earlier = profile(
        origin="kernel tables of X; steps: 12 points",
        parameters={
            reach: Parameter(0.5, "1", "fitted"),
            "host.step_s": Parameter(1e-5, "s", "fitted"),
            "gemm.launch_s": Parameter(4e-6, "s", "fitted"),
            "experts.skew": Parameter(0.9, "1", "assumed"),
        },
        held_out=(
            HeldOut("kernels of gemm.bf16, other half", 10, 0.5, 0.9, 0.0),
            HeldOut("tpot_ms", 12, 0.1, 0.2, 0.0),
        ),
        band=Band(-0.1, 0.2, "12 points"),
    )
    both = with_steps_of(kernels, earlier)
    values = {name: parameter.value for name, parameter in both.parameters.items()}
    assert values == {
        reach: 0.8, "host.step_s": 1e-5, "gemm.launch_s": 4e-6, "experts.skew": 0.9,
    }  # fmt: skip
    assert [each.median_ape for each in both.held_out] == [0.05, 0.1]
    assert both.band == earlier.band
    assert both.origin == "kernel tables of X; steps: 12 points"
    # nothing measured: nothing kept
    assert with_steps_of(kernels, profile()) == kernels
