"""The CPU as read from fake /proc and /sys trees, with the sizes counted by hand."""

from pathlib import Path

import pytest

from roofcast.hardware import container_limits, host_cpu
from roofcast.hardware.host_cpu import as_accelerator, read_linux

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz
flags\t\t: fpu sse2 avx2 avx512f avx512_bf16 amx_bf16 amx_int8
processor\t: 1
model name\t: Something else
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd sve i8mm bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def caches(cpu: int, l2_shared: str, l3_shared: str) -> dict[str, str]:
    """48 KiB L1d, 32 KiB L1i, 2 MiB L2, 105 MiB L3, as /sys lists them."""
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache"
    rows = [
        ("1", "Data", "48K", str(cpu)),
        ("1", "Instruction", "32K", str(cpu)),
        ("2", "Unified", "2048K", l2_shared),
        ("3", "Unified", "107520K", l3_shared),
    ]
    return {
        f"{folder}/index{index}/{key}": value
        for index, row in enumerate(rows)
        for key, value in zip(("level", "type", "size", "shared_cpu_list"), row, strict=True)
    }


@pytest.fixture
def server(tmp_path):
    """Four CPUs on two sockets: private L2, one L3 per socket, 8 GiB of memory."""
    files = {
        "proc/cpuinfo": XEON,
        "proc/meminfo": "MemTotal:        8388608 kB\nMemFree:  1 kB\n",
        "sys/devices/system/cpu/online": "0-3\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
    }
    for cpu in range(4):
        files |= caches(cpu, str(cpu), "0-1" if cpu < 2 else "2-3")
    return write(tmp_path, files)


def test_a_whole_machine(server):
    cpu = read_linux(server, None)
    assert cpu.cores == 4
    assert cpu.vendor == "Intel"
    assert cpu.isa == "avx2 avx512f avx512_bf16 amx_bf16 amx_int8"
    assert cpu.memory_total_bytes == cpu.memory_usable_bytes == 8 * 2**30
    assert cpu.max_clock_hz == 3.8e9
    assert cpu.l2_bytes == 4 * 2 * 2**20
    assert cpu.llc_bytes == 2 * 105 * 2**20


def test_only_the_cpus_of_this_process_and_their_caches_count(server):
    cpu = read_linux(server, frozenset({0, 1}))
    assert cpu.cores == 2
    assert cpu.l2_bytes == 2 * 2 * 2**20
    assert cpu.llc_bytes == 105 * 2**20


def test_a_version_2_container_limits_cores_and_memory(server):
    write(
        server,
        {
            "proc/self/cgroup": "0::/app\n",
            "sys/fs/cgroup/app/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/app/memory.max": "max\n",
            "sys/fs/cgroup/memory.max": "2147483648\n",
        },
    )
    cpu = read_linux(server, None)
    assert cpu.cores == 2  # 2.5 CPUs of time keep two threads busy
    assert cpu.memory_usable_bytes == 2 * 2**30
    assert cpu.memory_total_bytes == 8 * 2**30


def test_a_version_1_container_limits_cores_and_memory(server):
    write(
        server,
        {
            "proc/self/cgroup": "4:memory:/job\n1:cpu,cpuacct:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1073741824\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    cpu = read_linux(server, None)
    assert cpu.cores == 1
    assert cpu.memory_usable_bytes == 2**30


def test_no_limit_is_no_limit(server):
    write(
        server,
        {
            "proc/self/cgroup": "0::/\n1:cpu:/\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert container_limits.cpus(server) is None
    assert container_limits.memory_bytes(server) is None


def test_less_than_one_cpu_is_still_one(server):
    write(server, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"})
    assert read_linux(server, None).cores == 1


def test_an_arm_server_without_a_model_name(tmp_path):
    write(tmp_path, {"proc/cpuinfo": GRAVITON, "sys/devices/system/cpu/online": "0"})
    device = as_accelerator(read_linux(tmp_path, None))
    assert device.id == "cpu-arm-0x41-part-0xd40-1-core"
    assert device.vendor == "Arm"
    assert device.isa == "asimd sve bf16 i8mm"


def test_a_machine_that_tells_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(host_cpu.platform, "processor", lambda: "")
    monkeypatch.setattr(host_cpu.os, "cpu_count", lambda: None)
    device = as_accelerator(read_linux(tmp_path, None))
    assert device.id == "cpu-unknown-1-core"
    assert dict(device.known_numbers()) == {"compute_units": 1}


def test_as_a_device_only_what_was_read_is_known(server):
    device = as_accelerator(read_linux(server, None))
    assert device.id == "cpu-intel-xeon-platinum-8480-4-cores"
    assert device.name == "Intel Xeon Platinum 8480+ (4 cores)"
    assert device.kind == "cpu"
    assert device.memory_bandwidth_bytes_per_s is None
    assert device.peak_flops_per_s == {}
    assert {name for name, _ in device.known_numbers()} == set(device.provenance)
    assert {item.confidence for item in device.provenance.values()} == {"measured"}


def test_macos(monkeypatch):
    answers = {
        "machdep.cpu.brand_string": "Apple M3 Max",
        "hw.memsize": str(64 * 2**30),
        "hw.l2cachesize": "4194304",
    }
    monkeypatch.setattr(host_cpu, "sysctl", answers.get)
    monkeypatch.setattr(host_cpu.os, "cpu_count", lambda: 16)
    device = as_accelerator(host_cpu.read_macos())
    assert device.id == "cpu-apple-m3-max-16-cores"
    assert device.memory_bytes == 64 * 2**30
    assert device.llc_bytes is None


def test_a_missing_sysctl_is_no_error(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert host_cpu.sysctl("hw.memsize") is None
