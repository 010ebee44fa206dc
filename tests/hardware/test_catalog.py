"""Lookup: every spelling of a name finds its device, shared names are refused, no substrings."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.hardware import catalog
from roofcast.hardware.errors import AmbiguousNameError, UnknownNameError

SHARED = {
    "A100": {"a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb"},
    "V100": {"v100-pcie-16gb", "v100-pcie-32gb", "v100-sxm2-16gb", "v100-sxm2-32gb"},
    "H100": {"h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb"},
    "H200": {"h200-sxm", "h200-nvl"},
    "GH200": {"gh200-96gb", "gh200-144gb"},
    "A100 80GB": {"a100-pcie-80gb", "a100-sxm-80gb"},
    "A100 SXM": {"a100-sxm-40gb", "a100-sxm-80gb"},
    "A100 PCIe": {"a100-pcie-40gb", "a100-pcie-80gb"},
    "RTX PRO 6000": {"rtx-pro-6000-blackwell-ws", "rtx-pro-6000-blackwell-server"},
    "M3 Max": {"apple-m3-max-30c", "apple-m3-max-40c"},
}

SPELLINGS = {
    "h100-sxm": "h100-sxm-80gb",
    "H100 SXM5 80GB": "h100-sxm-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "h100 pcie": "h100-pcie-80gb",
    "a100_sxm-80GB": "a100-sxm-80gb",
    "A100 SXM 80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "a100-sxm-40gb": "a100-sxm-40gb",
    "b200": "b200-sxm",
    "B200-SXM": "b200-sxm",
    "gb200": "gb200",
    "MI300X": "mi300x",
    "AMD Instinct MI300X": "mi300x",
    "Instinct MI300X": "mi300x",
    "rtx 4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "GeForce RTX 4090": "rtx-4090",
    "L40": "l40",
    "L40S": "l40s",
    "A10": "a10",
    "A10G": "a10g",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
    "rtx-pro-6000-blackwell-server": "rtx-pro-6000-blackwell-server",
    "Apple M3 Max (40-core GPU)": "apple-m3-max-40c",
    "Trillium": "tpu-v6e",
    "MI250": "mi250",
    "MI250X": "mi250x",
}


@pytest.mark.parametrize(("name", "ids"), SHARED.items())
def test_a_name_that_fits_several_devices_lists_them_all(name, ids):
    with pytest.raises(AmbiguousNameError) as caught:
        catalog.find(name)
    listed = str(caught.value).partition("which one: ")[2].split(", ")
    assert set(listed) == ids
    assert len(listed) == len(ids)


@pytest.mark.parametrize(("name", "id_"), SPELLINGS.items())
def test_usual_spellings_find_their_device(name, id_):
    assert catalog.find(name).id == id_


@pytest.mark.parametrize("name", ["", " ", "A1", "H10", "100", "SXM", "NVIDIA", "80GB", "rtx", "M"])
def test_a_part_of_a_name_finds_nothing(name):
    with pytest.raises(UnknownNameError):
        catalog.find(name)


def test_a_longer_name_does_not_fall_back_on_a_part_of_it():
    with pytest.raises(UnknownNameError, match="did you mean 'rtx-4090'"):
        catalog.find("rtx 4090 ti")
    with pytest.raises(UnknownNameError):
        catalog.find("A100 PCIe 80GB with NVLink")


def test_a_misspelt_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'H100 SXM'"):
        catalog.find("H100 SMX")


@st.composite
def respelt_names(draw):
    """An id, with letters in either case and punctuation put in or changed at will."""
    id_ = draw(st.sampled_from(catalog.names()))
    pieces = [
        draw(st.sampled_from([letter.lower(), letter.upper()]))
        + draw(st.sampled_from(["", "", "", " ", "-", "_", ".", "/", "  "]))
        for letter in id_
        if letter.isalnum()
    ]
    return id_, draw(st.sampled_from(["", " ", "_"])) + "".join(pieces)


@given(respelt_names())
def test_case_and_punctuation_never_matter(case):
    id_, respelt = case
    assert catalog.find(respelt).id == id_


@given(st.text(max_size=12))
def test_whatever_is_found_carries_the_name_in_full(text):
    try:
        device = catalog.find(f"{text}!")
    except (UnknownNameError, AmbiguousNameError):
        return
    spellings = (device.id, device.name, *device.aliases, *device.families, *device.driver_names)
    bare = [name.removeprefix(f"{device.vendor} ") for name in spellings]
    allowed = [*spellings, *bare, *(f"{device.vendor} {name}" for name in bare)]
    assert catalog.fold(text) in {catalog.fold(name) for name in allowed}


def test_a_driver_name_shared_by_a_family_still_tells_devices_apart():
    assert [device.id for device in catalog.with_driver_name("NVIDIA H200")] == ["h200-sxm"]
    assert catalog.with_driver_name("NVIDIA H2") == ()


def test_importing_and_finding_stays_light():
    code = (
        "import sys; from roofcast.hardware.catalog import find; find('h100-sxm');"
        "print([m for m in ('numpy', 'pydantic', 'torch', 'scipy') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
