"""The shipped specs: each loads, is sourced and unambiguous; published figures are what they say.

The figures are the vendors' printed ones (datasheets and product pages of the devices named),
typed here by hand and independent of the TOML files.
"""

from pathlib import Path

import pytest

from roofcast.hardware import all_accelerators, catalog, find
from roofcast.hardware.accelerator import CONFIDENCES, DTYPES
from roofcast.hardware.spec_file import read_shipped, read_user

FILES = sorted((Path(catalog.__file__).parent / "devices").glob("*.toml"))
DEVICES = all_accelerators()

# id: bandwidth (TB/s), dense bf16 and fp8 (TFLOP/s), capacity (marketed), one-way link (GB/s), TDP (W)
PUBLISHED = {
    "a100-sxm-40gb": (1.555, 312, None, 40 * 2**30, 300, 400),
    "a100-sxm-80gb": (2.039, 312, None, 80 * 2**30, 300, 400),
    "a100-pcie-80gb": (1.935, 312, None, 80 * 2**30, 300, 300),
    "h100-sxm-80gb": (3.35, 989.4, 1978.9, 80 * 2**30, 450, 700),
    "h100-pcie-80gb": (2.0, 756.5, 1513, 80 * 2**30, 300, 350),
    "h200-sxm": (4.8, 989.4, 1978.9, 141 * 2**30, 450, 700),
    "b200-sxm": (7.7, 2250, 4500, 180 * 2**30, 900, 1000),
    "gb200": (8.0, 2500, 5000, 186 * 2**30, 900, 1200),
    "mi300x": (5.3, 1307.4, 2614.9, 192 * 2**30, 448, 750),
    "mi325x": (6.0, 1307.4, 2614.9, 256 * 2**30, 448, 1000),
    "mi355x": (8.0, 2516.6, 5033, 288 * 2**30, 537.6, 1400),
    "rtx-4090": (1.008, 165.2, 330.3, 24 * 2**30, None, 450),
    "rtx-5090": (1.792, 209.5, 419, 32 * 2**30, None, 575),
    "l40s": (0.864, 362.05, 733, 48 * 2**30, None, 350),
    "l4": (0.3, 121, 242, 24 * 2**30, None, 72),
    "tpu-v5e": (0.819, 197, None, 16 * 10**9, 200, None),
    "gaudi3": (3.7, 1677, 1677, 128 * 10**9, 600, 900),
}


@pytest.mark.parametrize(("id_", "figures"), PUBLISHED.items())
def test_published_figures(id_, figures):
    bandwidth_tb_per_s, bf16, fp8, capacity_bytes, link_gb_per_s, tdp_w = figures
    device = find(id_)
    assert device.memory_bandwidth_bytes_per_s == pytest.approx(bandwidth_tb_per_s * 1e12)
    assert device.peak("bf16") == pytest.approx(bf16 * 1e12)
    assert device.peak_flops_per_s.get("fp8") == (pytest.approx(fp8 * 1e12) if fp8 else None)
    assert device.memory_capacity_bytes == capacity_bytes
    link = link_gb_per_s * 1e9 if link_gb_per_s else None
    assert device.scale_up_bytes_per_s == (pytest.approx(link) if link else None)
    assert device.tdp_w == tdp_w


def test_peaks_are_dense_where_the_vendor_prints_sparse():
    # Seen in public tables: H100 1979/3958, L4 242/485, NVL with SXM's 989, 4090 bf16 330
    assert find("h100-sxm").peak("bf16") < 1000e12
    assert find("h100-sxm").peak("fp8") < 2000e12
    assert find("l4").peak("bf16") == 121e12
    assert find("h100-nvl-94gb").peak("bf16") == 835.5e12
    assert find("rtx-4090").peak("bf16") == 165.2e12


def test_fp8_with_fp16_accumulation_is_kept_apart():
    rtx_4090 = find("rtx-4090")
    assert rtx_4090.peak("fp8") == 330.3e12
    assert rtx_4090.fp8_fp16_accumulate_flops_per_s == 660.6e12
    assert all(
        device.fp8_fp16_accumulate_flops_per_s == pytest.approx(2 * device.peak("fp8"), rel=0.01)
        for device in DEVICES
        if device.fp8_fp16_accumulate_flops_per_s
    )


def test_blackwell_ultra_gave_up_int8():
    assert find("b300-sxm").peak("int8") < find("b300-sxm").peak("bf16") / 10


def test_links_are_one_way():
    # NVLink 4 is sold as 900 GB/s both ways together
    assert find("h100-sxm").scale_up_bytes_per_s == 450e9
    assert find("gb200").scale_up_max_devices == 72


def test_the_driver_shows_less_than_was_sold():
    assert find("h100-sxm").memory_usable_bytes == 84_942_979_072  # 79.1 of 80 GiB
    for device in DEVICES:
        if device.memory_usable_bytes and device.memory_capacity_bytes:
            share = device.memory_usable_bytes / device.memory_capacity_bytes
            assert 15 / 16 - 0.001 < share <= 1.0, device.id  # ECC in GDDR6 takes a sixteenth


def test_what_is_not_known_stays_unknown():
    assert find("a10g").peak_flops_per_s == {"fp32": 31.5e12}
    assert find("epyc-9654").memory_capacity_bytes is None
    assert find("trainium2").scale_up_bytes_per_s is None  # AWS states no direction
    assert find("mi308x").peak_flops_per_s == {}


@pytest.mark.parametrize(
    ("id_", "field"),
    [
        ("v100-sxm2-16gb", "tdp_w"),
        ("t4", "peak_flops_per_s.int8"),
        ("l40s", "l2_bytes"),
        ("h20", "scale_up_bytes_per_s"),
        ("gh200-144gb", "memory_bandwidth_bytes_per_s"),
        ("rtx-3060", "peak_flops_per_s.bf16"),
        ("rtx-5080", "peak_flops_per_s.fp4"),
        ("mi308x", "memory_bandwidth_bytes_per_s"),
        ("mi350x", "peak_flops_per_s.fp4"),
        ("apple-m1", "compute_units"),
        ("grace-72c", "llc_bytes"),
        ("b100", "memory_bandwidth_bytes_per_s"),
        ("tpu-v7", "memory_type"),
        ("cerebras-wse3", "peak_flops_per_s.fp16"),
    ],
)
def test_numbers_that_were_not_found_stay_marked(id_, field):
    assert find(id_).provenance[field].confidence == "unverified"


def test_every_device_of_the_first_table_is_there():
    assert len(DEVICES) >= 90
    assert {device.vendor for device in DEVICES} >= {
        *("NVIDIA", "AMD", "Intel", "Google", "AWS", "Apple", "Groq", "Cerebras"),
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestEveryFile:
    def test_passes_the_check_that_users_files_pass(self, path):
        assert read_user(path) == read_shipped(path)

    def test_is_named_after_its_id(self, path):
        assert find(path.stem).id == path.stem

    def test_every_number_has_a_source(self, path):
        device = read_shipped(path)
        for name, value in device.known_numbers():
            assert value > 0
            provenance = device.provenance[name]
            assert len(provenance.source) > 10
            assert provenance.confidence in CONFIDENCES

    def test_numbers_are_of_the_right_size(self, path):
        """A unit slip (GB for GiB of bandwidth, MHz for Hz) leaves these ranges."""
        device = read_shipped(path)
        bounds = {
            "memory_capacity_bytes": (1e8, 1e12),
            "memory_usable_bytes": (1e9, 1e12),
            "memory_bandwidth_bytes_per_s": (5e10, 1e17),
            "boost_clock_hz": (5e8, 6e9),
            "l2_bytes": (1e6, 1e9),
            "llc_bytes": (1e7, 1e11),
            "scale_up_bytes_per_s": (2e10, 2e12),
            "tdp_w": (20, 2000),
            "pcie_generation": (3, 6),
            "pcie_lanes": (4, 16),
            "price_usd": (100, 1e5),
            "rent_usd_per_hour": (0.1, 50),
        }
        for name, value in device.known_numbers():
            low, high = bounds.get(name, (1, 2e17))
            assert low <= value <= high, name

    def test_peaks_grow_as_formats_shrink(self, path):
        peaks = read_shipped(path).peak_flops_per_s
        assert set(peaks) <= set(DTYPES)
        assert peaks.get("bf16", 0) == peaks.get("fp16", 0) or not {"bf16", "fp16"} <= set(peaks)
        ladder = [
            peaks[dtype]
            for dtype in ("fp32", "tf32", "bf16", "fp8", "fp6", "fp4")
            if dtype in peaks
        ]
        assert ladder == sorted(ladder)

    def test_prices_carry_a_note(self, path):
        device = read_shipped(path)
        assert (device.price_usd is None) == (device.price_note is None)
        assert (device.rent_usd_per_hour is None) == (device.rent_note is None)


def test_no_alias_names_two_devices():
    owners: dict[str, set[str]] = {}
    for device in DEVICES:
        for name in (device.id, device.name, *device.aliases):
            bare = name.removeprefix(f"{device.vendor} ")
            owners.setdefault(catalog.fold(bare), set()).add(device.id)
        shared = {catalog.fold(name) for name in device.families}
        assert not shared & {catalog.fold(name) for name in (device.id, *device.aliases)}
    assert {name: ids for name, ids in owners.items() if len(ids) > 1} == {}


def test_a_family_name_is_an_alias_of_nobody():
    families = {catalog.fold(name) for device in DEVICES for name in device.families}
    names = {catalog.fold(name) for device in DEVICES for name in (device.id, *device.aliases)}
    assert families & names == set()
