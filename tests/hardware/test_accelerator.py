"""Derived numbers against hand-worked ones; an unknown number is an error that names it."""

import dataclasses

import pytest

from roofcast.hardware import find
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import UnknownNameError, UnknownSpecError


def device(**values) -> Accelerator:
    return Accelerator(id="x", name="Device X", vendor="Maker", kind="gpu", **values)


def test_ridge_point_is_peak_over_bandwidth():
    # 989.4e12 / 3.35e12 = 295.34; H200 has the same compute on 4.8 TB/s: 206.1
    assert find("h100-sxm").ridge_point_flop_per_byte("bf16") == pytest.approx(295.34, abs=0.01)
    assert find("h200-sxm").ridge_point_flop_per_byte("bf16") == pytest.approx(206.125)


def test_pcie_bandwidth_is_lanes_times_rate_times_coding():
    # PCIe 3.0 x16: 16 lanes * 8 GT/s * 128/130 / 8 bit = 15.754 GB/s each way; 4.0 twice that
    assert device(pcie_generation=3, pcie_lanes=16).pcie_bytes_per_s == pytest.approx(
        15.754e9, 1e-4
    )
    assert device(pcie_generation=4, pcie_lanes=16).pcie_bytes_per_s == pytest.approx(
        31.508e9, 1e-4
    )
    assert device(pcie_generation=4, pcie_lanes=8).pcie_bytes_per_s == pytest.approx(15.754e9, 1e-4)


def test_an_unknown_pcie_generation_is_not_guessed():
    with pytest.raises(UnknownSpecError, match="PCIe 9; known: 3, 4, 5, 6"):
        _ = device(pcie_generation=9, pcie_lanes=16).pcie_bytes_per_s


def test_a_missing_number_is_an_error_that_names_device_and_field():
    with pytest.raises(UnknownSpecError, match=r"Device X \(x\).*memory_bandwidth_bytes_per_s"):
        device().require("memory_bandwidth_bytes_per_s")


def test_a_missing_peak_names_the_dtypes_that_are_known():
    v100 = find("v100-sxm2-32gb")
    with pytest.raises(UnknownSpecError, match=r"no dense bf16 peak \(known: fp32, fp16\)"):
        v100.peak("bf16")
    assert v100.peak("fp16") == 125e12


def test_an_invented_dtype_is_not_mistaken_for_a_missing_peak():
    with pytest.raises(UnknownNameError, match="unknown compute dtype 'fp17'; did you mean"):
        find("h100-sxm").peak("fp17")


def test_memory_is_what_the_driver_reports_where_that_is_known():
    both = device(memory_capacity_bytes=80 * 2**30, memory_usable_bytes=79 * 2**30)
    assert both.memory_bytes == 79 * 2**30
    assert device(memory_capacity_bytes=80 * 2**30).memory_bytes == 80 * 2**30
    with pytest.raises(UnknownSpecError, match="memory_capacity_bytes"):
        _ = device().memory_bytes


def test_a_device_is_a_frozen_hashable_value():
    h100 = find("h100-sxm")
    with pytest.raises(dataclasses.FrozenInstanceError):
        h100.tdp_w = 1.0
    assert h100 in {h100}
    assert dataclasses.asdict(h100)["peak_flops_per_s"]["bf16"] == 989.4e12


def test_known_numbers_lists_peaks_by_dtype_and_leaves_out_the_unknown():
    numbers = dict(device(tdp_w=70.0, peak_flops_per_s={"fp16": 65e12}, year=2018).known_numbers())
    assert numbers == {"tdp_w": 70.0, "peak_flops_per_s.fp16": 65e12}
