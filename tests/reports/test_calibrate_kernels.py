"""`roofcast calibrate kernels`: profiles from tables, and one clear line for what can't be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from roofcast.hardware.profile_store import read
from tests.calibrate.test_kernel_calibration import write_tables
from tests.reports.test_errors import refused

HEADER = "gpu,backend,version,kernel_source,dtype,m,n,k,latency_us\n"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    return tmp_path


def test_tables_become_a_profile_that_forecasts_use(roofcast, llama, tables):
    out = tables / "made"
    status, text, err = roofcast(
        *("calibrate", "kernels", tables, "-d", "h200-sxm", "--out", out, "--json"),
        *("--source", "our lab"),
    )
    assert (status, err) == (0, "h200-sxm: vllm\n")
    document = json.loads(text)
    assert document["profiles"] == [str(out / "h200-sxm.vllm.json")]
    (row,) = document["held_out"]
    assert (row["device"], row["engine"], row["kernel"]) == ("h200-sxm", "vllm", "gemm.bf16")
    assert row["median_ape"] < 0.06  # the tables were simulated with 4 % of noise
    made = read(out / "h200-sxm.vllm.json")
    assert made.parameters["gemm.bandwidth_efficiency.bf16"].value == pytest.approx(0.8, rel=0.1)
    assert made.origin.startswith("kernel tables of our lab; steps")
    assert made.parameters["gemm.fixed_s.bf16"].sources == ("our lab, h200_sxm/gemm/vllm/1.0",)
    # the steps of the shipped profile stay
    assert "gemm.launch_s" in made.parameters
    profile = out / "h200-sxm.vllm.json"
    status, text, _ = roofcast("predict", llama, "-d", "h200-sxm", "-p", profile, "--json")
    assert status == 0
    assert json.loads(text)[0]["profile"] == "h200-sxm under vllm"


def test_every_device_in_the_folder_can_be_asked_for(roofcast, tables):
    status, text, _ = roofcast(
        "calibrate", "kernels", tables, "-d", "all", "--out", tables / "made"
    )
    assert status == 0
    assert "gemm.bf16" in text
    assert f"The profile is {tables / 'made' / 'h200-sxm.vllm.json'}." in " ".join(text.split())


def test_profile_show_lists_errors_by_kernel(roofcast, tables):
    roofcast("calibrate", "kernels", tables, "-d", "h200-sxm", "--out", tables / "made")
    status, text, _ = roofcast("profile", "show", tables / "made" / "h200-sxm.vllm.json")
    assert status == 0
    assert "kernels of gemm.bf16, other half of the shapes" in text
    assert "175" in text  # 7 x 5 x 5 simulated products, each judged once


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("h200_sxm,vllm,1.0,k,bfloat16,1,128\n", "line 2: 7 cells under 9 columns"),
        ("h200_sxm,vllm,1.0,k,bfloat16,one,128,256,7.5\n", "column m"),
        ("", "no rows"),
        ("l40s,vllm,1.0,k,bfloat16,1,128,256,7.5\n", "no rows"),
    ],
    ids=["ragged", "text", "empty", "of another device"],
)
def test_a_bad_table_is_one_line(roofcast, tmp_path, body, said):
    (tmp_path / "gemm_h200_sxm.csv").write_text(HEADER + body)
    refused(roofcast("calibrate", "kernels", tmp_path, "-d", "h200-sxm"), said, str(tmp_path))


def test_what_is_not_there_is_named(roofcast, tables):
    call = ("calibrate", "kernels")
    refused(roofcast(*call, tables / "nowhere", "-d", "h200-sxm"), "no folder of kernel tables")
    refused(roofcast(*call, tables, "-d", "b200-sxm"), "gemm_b200_sxm.csv.gz")
    refused(roofcast(*call, tables, "-d", "h2000"), "h200")
    refused(roofcast(*call, tables, "-d", "h200-sxm", "-e", "sglang"), "sglang", "vllm")
    (tables / "gemm_h200_sxm.csv.gz").write_bytes(gzip.compress(b"m,n,k\n1,2,3\n"))
    refused(roofcast(*call, tables, "-d", "h200-sxm"), "no column latency_us")
    (tables / "gemm_h200_sxm.csv.gz").write_bytes(b"not gzip")
    refused(roofcast(*call, tables, "-d", "h200-sxm"), "gemm_h200_sxm.csv.gz")
