"""The published record: readable, sourced, and never above what the device could do."""

from pathlib import Path
from typing import get_args

import pytest

from roofcast.hardware import find, names
from roofcast.hardware import published as published_module
from roofcast.hardware.accelerator import DTYPES
from roofcast.hardware.published import Quantity, Statistic, published

RECORDS = [record for id_ in names() for record in published(id_)]


def test_every_record_belongs_to_a_device():
    path = Path(published_module.__file__).with_suffix(".csv")
    assert len(RECORDS) == len(path.read_text(encoding="utf-8").splitlines()) - 1
    assert len({record.device for record in RECORDS}) >= 15


def test_records_are_well_formed():
    for record in RECORDS:
        assert record.quantity in get_args(Quantity)
        assert record.statistic in get_args(Statistic)
        assert record.dtype is None or record.dtype in DTYPES
        assert (record.dtype is None) == (
            record.quantity in ("memory_bytes_per_s", "all_reduce_bus_bytes_per_s")
        )
        assert record.devices == 1 or record.quantity == "all_reduce_bus_bytes_per_s"
        assert len(record.source) > 10


def ceiling(record) -> float:
    """What the device could reach at best, by its spec."""
    device = find(record.device)
    if record.quantity == "gemm_flops_per_s":
        return device.peak_flops_per_s.get(record.dtype) or device.peak("bf16")
    if record.quantity == "all_reduce_bus_bytes_per_s":
        # A switch that reduces needs n + 1 shards per link where a ring needs 2 (n - 1).
        in_switch = max(1.0, 2 * (record.devices - 1) / (record.devices + 1))
        return (device.scale_up_bytes_per_s or device.pcie_bytes_per_s) * in_switch
    if record.device == "rtx-pro-6000-blackwell-server":
        return 1792e9  # its spec says why the measured card may be this part
    return device.require("memory_bandwidth_bytes_per_s")


def test_nothing_exceeds_its_device():
    beyond = [record for record in RECORDS if not 0 < record.value <= 1.001 * ceiling(record)]
    assert beyond == []


def test_known_values():
    best = {
        record.engine: record.value
        for record in published("h100-sxm-80gb")
        if (record.quantity, record.dtype) == ("weight_read_bytes_per_s", "bf16")
    }
    # aiconfigurator-core 0.12.0: 3079 GB/s with vLLM 0.24.0, 92 % of 3350
    assert best["vllm 0.24.0"] == 3.079e12
    assert max(best.values()) / find("h100-sxm").require(
        "memory_bandwidth_bytes_per_s"
    ) == pytest.approx(0.919, abs=0.001)


def test_a_device_without_records_has_none():
    assert published("apple-m1") == ()
    assert published("no-such-device") == ()
