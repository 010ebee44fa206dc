"""Every shipped profile loads, says where its numbers come from, and keeps within physics."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofcast.hardware.catalog import find
from roofcast.hardware.profile import Profile
from roofcast.hardware.profile_store import read, shipped

PATHS = list(shipped())
OF_THE_HOST = ("host.", "prefill.")
WITH_TABLES = {
    "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm", "b200-sxm", "b300-sxm", "gb200", "gb300", "l40s",
    "rtx-pro-6000-blackwell-server", "arc-pro-b60",
}  # fmt: skip
TABLED = [
    path
    for path in PATHS
    if path.name.split(".")[0] in WITH_TABLES
    and path.name.split(".")[1] in ("vllm", "sglang", "trtllm")
]


def test_the_gpus_people_buy_have_a_profile() -> None:
    assert {path.name.split(".")[0] for path in PATHS} >= WITH_TABLES


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_shipped_profile_is_sound(path: Path) -> None:
    profile = read(path)
    assert path.name == f"{profile.device}.{profile.engine}.json"
    assert find(profile.device).id == profile.device
    for name, parameter in profile.parameters.items():
        assert parameter.value > 0, name
        assert parameter.origin != "measured" or parameter.sources, name
        assert parameter.origin == "assumed" or parameter.sources, name
        if "bandwidth_efficiency" in name:
            assert parameter.value <= 1.0 + 1e-9, name
        if parameter.unit == "s":
            assert parameter.value < (0.5 if name.startswith(OF_THE_HOST) else 2e-3), name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_kernel_parameters_carry_errors_or_say_why_not(path: Path) -> None:
    profile = read(path)
    silent = [
        name
        for name, parameter in profile.parameters.items()
        if parameter.origin == "fitted" and parameter.standard_error is None and not parameter.note
    ]
    assert silent == []


@pytest.mark.parametrize("path", TABLED, ids=lambda path: path.name)
def test_no_forecast_falls_below_the_floor(path: Path) -> None:
    """No roof is reached beyond its height, and every byte moves at least once."""
    for name, parameter in read(path).parameters.items():
        kind, _, term = name.partition(".")
        if term.startswith("compute_efficiency"):
            assert parameter.value <= 1.0, name
        if term.startswith("activation_factor") and kind != "prefill":
            assert parameter.value >= 1.0, name


@pytest.mark.parametrize("path", TABLED, ids=lambda path: path.name)
def test_fewer_bytes_never_read_slower(path: Path) -> None:
    """Bits over achieved bandwidth, of experts and products in formats of ever fewer bits.

    What reaches less of the bandwidth reads fewer bytes; 10 % are the fits' own scatter.
    """
    profile = read(path)
    bits = {"bf16": 16.0, "fp8": 8.0, "fp8_block": 8.0, "nvfp4": 4.5}
    for kind in ("experts", "gemm"):
        reach = {f: profile.parameters.get(f"{kind}.bandwidth_efficiency.{f}") for f in bits}
        costs = [(bits[f], bits[f] / each.value, f) for f, each in reach.items() if each]
        for wide, most, format_ in costs:
            slow = [f for narrow, cost, f in costs if narrow < wide and cost > 1.1 * most]
            assert slow == [], (kind, format_)


def _reach(profile: Profile, name: str) -> float:
    return profile.parameters[name].value


def test_published_ceilings_bound_what_large_reads_achieve() -> None:
    """Best weight-read efficiency of any engine in the same tables: H100 0.92, B200 0.93, L40S 0.94.

    A fit's large-read efficiency lies near the median of large reads, so at or below those.
    """
    for device, ceiling in (("h100-sxm-80gb", 0.92), ("b200-sxm", 0.93), ("l40s", 0.94)):
        for path in PATHS:
            profile = read(path)
            if profile.device == device and profile.origin.startswith("kernel tables"):
                reach = _reach(profile, "gemm.bandwidth_efficiency.bf16")
                assert 0.6 < reach <= ceiling + 0.02, path.name
