"""Profiles of devices nobody measured, from those that were."""

from __future__ import annotations

import math

import pytest

from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError, UnknownNameError
from roofcast.hardware.profile import Band, Parameter, Profile
from roofcast.hardware.transfer import distance, transfer_error, transferred


def measured(device: str, reach: float, engine: str = "vllm") -> Profile:
    return Profile(
        name=f"{device} under {engine}",
        device=device,
        engine=engine,
        origin="test",
        parameters={"gemm.bandwidth_efficiency": Parameter(reach, "1", "fitted", 0.01)},
        band=Band(-0.1, 0.2, "test"),
    )


HOPPER = [measured("h100-sxm-80gb", 0.9), measured("h200-sxm", 0.4)]
AMPERE = measured("a100-sxm-80gb", 0.7)


def test_relatives_of_the_same_architecture_come_first() -> None:
    lent = transferred(find("gh200-96gb"), "vllm", [*HOPPER, AMPERE])
    reach = lent.parameters["gemm.bandwidth_efficiency"]
    assert reach.value == pytest.approx(math.sqrt(0.9 * 0.4))  # the geometric mean of both
    assert reach.origin == "transferred"
    assert "h100-sxm-80gb" in reach.sources[0]
    assert "a100" not in lent.origin


def test_another_vendor_is_the_last_resort() -> None:
    mi300x = find("mi300x")
    assert distance(mi300x, find("h100-sxm-80gb")) > distance(
        find("a100-sxm-80gb"), find("h100-sxm-80gb")
    )
    assert distance(find("h100-sxm-80gb"), find("h100-sxm-80gb")) == 0
    lent = transferred(mi300x, "vllm", HOPPER)
    assert any("was not measured" in warning for warning in lent.warnings)


def test_distance_is_symmetric_and_minds_the_kind_of_memory() -> None:
    a100, a6000, l40s = find("a100-sxm-80gb"), find("rtx-a6000"), find("l40s")
    assert distance(a100, a6000) == distance(a6000, a100)
    # an A6000 shares its architecture with the A100 and its memory with the L40S
    assert distance(a6000, a100) < distance(a6000, l40s)


def test_the_interval_widens_by_the_error_of_a_transfer() -> None:
    near = transferred(find("gh200-96gb"), "vllm", HOPPER).band
    far = transferred(find("mi300x"), "vllm", HOPPER).band
    assert near is not None
    assert far is not None
    assert near.low == pytest.approx(-math.hypot(0.1, transfer_error(0.0)))
    assert far.high > near.high > 0.2


def test_farther_transfers_are_less_sure() -> None:
    errors = [transfer_error(apart) for apart in (0.0, 0.5, 1.0, 2.0)]
    assert errors == sorted(errors)
    assert errors[0] > 0


def test_an_engine_nobody_measured_is_named() -> None:
    with pytest.raises(UnknownNameError, match="vllm"):
        transferred(find("mi300x"), "trtlm", HOPPER)
    with pytest.raises(InputError, match="no profiles"):
        transferred(find("mi300x"), "vllm", [])


@pytest.mark.parametrize("device", ["gh200-96gb", "mi300x", "rtx-4090", "l4", "a100-pcie-40gb"])
def test_shipped_profiles_lend_to_devices_without_their_own(device: str) -> None:
    lent = transferred(find(device))
    reach = lent.parameters["gemm.bandwidth_efficiency"].value
    assert 0.4 < reach <= 1.0
    assert lent.band is not None
    assert lent.engine == "vllm"
