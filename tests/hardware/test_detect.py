"""The attached device, with a fake torch: what the driver says decides, the catalogue fills in."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from roofcast.hardware import detect, find
from roofcast.hardware.errors import InputError, UnknownNameError, UnknownSpecError


def fake_torch(name=None, memory_bytes=0, *, hip=None, mps=False, **more):
    properties = SimpleNamespace(
        name=name,
        total_memory=memory_bytes,
        major=9,
        minor=0,
        multi_processor_count=132,
        gcnArchName="gfx942:sramecc+:xnack-",
        **more,
    )
    return SimpleNamespace(
        __version__="2.13.0",
        version=SimpleNamespace(hip=hip),
        cuda=SimpleNamespace(
            is_available=lambda: name is not None, get_device_properties=lambda index: properties
        ),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps)),
    )


@pytest.fixture
def machine(monkeypatch):
    def pretend(torch):
        monkeypatch.setattr(detect, "_torch", lambda: torch)
        monkeypatch.setattr(detect, "_gpu_is_likely", lambda: True)

    return pretend


@pytest.mark.parametrize(
    ("name", "memory_bytes", "id_"),
    [
        ("NVIDIA H100 80GB HBM3", 84_942_979_072, "h100-sxm-80gb"),
        ("NVIDIA H100 PCIe", 84_942_979_072, "h100-pcie-80gb"),
        ("NVIDIA H200", 150_110_011_392, "h200-sxm"),
        ("NVIDIA A100-SXM4-80GB", 85_100_068_864, "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", 42_298_834_944, "a100-sxm-40gb"),
        ("NVIDIA GeForce RTX 4090", 25_386_352_640, "rtx-4090"),
    ],
)
def test_a_known_gpu_is_the_catalogues_with_its_drivers_memory(machine, name, memory_bytes, id_):
    machine(fake_torch(name, memory_bytes))
    device = detect.attached()
    assert device.id == id_
    assert device.memory_usable_bytes == memory_bytes
    assert device.memory_bandwidth_bytes_per_s == find(id_).memory_bandwidth_bytes_per_s
    assert device.provenance["memory_usable_bytes"].confidence == "measured"
    assert "driver" in device.provenance["memory_usable_bytes"].source


def test_rocm_is_cuda_to_torch(machine):
    machine(fake_torch("AMD Instinct MI300X", 206_141_652_992, hip="6.3"))
    assert detect.attached("cuda").id == "mi300x"


def test_the_same_name_with_other_memory_is_another_card(machine):
    # H20 is sold with 96 and with 141 GB; the catalogue has the former
    machine(fake_torch("NVIDIA H20", 150_000_000_000))
    device = detect.attached()
    assert device.id == "nvidia-h20-140gib"
    with pytest.raises(UnknownSpecError, match="memory_bandwidth"):
        device.require("memory_bandwidth_bytes_per_s")


def test_a_slice_of_a_gpu_is_not_the_gpu(machine):
    machine(fake_torch("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10_200_547_328))
    assert detect.attached().id == "nvidia-h100-80gb-hbm3-mig-1g-10gb-10gib"


def test_an_undocumented_gpu_is_what_its_driver_says(machine):
    machine(
        fake_torch(
            "NVIDIA GeForce RTX 3080 Ti",
            12_500_000_000,
            L2_cache_size=6_291_456,
            clock_rate=1_665_000,
        )
    )
    device = detect.attached()
    assert device.id == "nvidia-geforce-rtx-3080-ti-12gib"
    assert dict(device.known_numbers()) == {
        "memory_usable_bytes": 12_500_000_000,
        "compute_units": 132,
        "l2_bytes": 6_291_456,
        "boost_clock_hz": 1.665e9,
    }
    assert device.isa == "9.0"
    assert set(device.provenance) == {name for name, _ in device.known_numbers()}


def test_an_undocumented_amd_gpu_keeps_its_target(machine):
    machine(fake_torch("AMD Instinct MI100", 34_342_961_152, hip="6.3"))
    device = detect.attached()
    assert (device.vendor, device.isa) == ("AMD", "gfx942:sramecc+:xnack-")


@pytest.mark.parametrize(
    ("chip", "id_", "bandwidth"),
    [("Apple M2 Max", "apple-m2-max", 400e9), ("Apple M3 Max", "apple-m3-max-gpu", None)],
)
def test_apples_bins_are_not_guessed(machine, monkeypatch, chip, id_, bandwidth):
    """M3 Max is sold with 300 and 400 GB/s under one name; every M2 Max has 400."""
    machine(fake_torch(mps=True))
    monkeypatch.setattr(detect, "sysctl", {"machdep.cpu.brand_string": chip}.get)
    device = detect.attached("mps")
    assert device.id == id_
    assert device.memory_bandwidth_bytes_per_s == bandwidth
    assert device.memory_bytes == detect.host_accelerator().memory_bytes


def test_without_a_gpu_it_is_the_cpu(machine):
    machine(fake_torch())
    assert detect.attached().kind == "cpu"


def test_without_torch_it_is_the_cpu(machine):
    machine(None)
    assert detect.attached().kind == "cpu"
    with pytest.raises(InputError, match="torch is not installed"):
        detect.attached("cuda")


@pytest.mark.parametrize("wanted", ["cuda", "mps"])
def test_a_device_that_was_asked_for_and_is_absent_is_an_error(machine, wanted):
    machine(fake_torch())
    with pytest.raises(InputError, match=f"{wanted}: torch 2.13.0 finds no such device"):
        detect.attached(wanted)


def test_the_cpu_can_be_asked_for_beside_a_gpu(machine):
    machine(fake_torch("NVIDIA H200", 150_110_011_392))
    assert detect.attached("cpu").kind == "cpu"


def test_an_unknown_preference_names_the_choices():
    with pytest.raises(UnknownNameError, match="choices: auto, cpu, cuda, mps"):
        detect.attached("gpu")


def test_describing_the_cpu_does_not_import_torch():
    code = (
        "import sys; from roofcast.hardware.detect import attached; attached('cpu');"
        "print('torch' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_this_machine_has_a_cpu():
    device = detect.attached("cpu")
    assert device.compute_units
    assert device.memory_bytes > 2**28
