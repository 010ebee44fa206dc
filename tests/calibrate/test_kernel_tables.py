"""Reading kernel tables, leaving out what is wrong, and turning rows into operators."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from roofcast.calibrate.kernel_tables import screens, workloads
from roofcast.calibrate.kernel_tables.routing import expert_load, power_law_load
from roofcast.calibrate.kernel_tables.sources import (
    Folder,
    devices,
    kinds,
    table_name,
    tabled,
    usual_source,
)
from roofcast.calibrate.kernel_tables.table import Table, read_csv
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import FileFormatError, InputError
from roofcast.simulator.engines import find_engine

VLLM = find_engine("vllm")


def table(**columns: object) -> Table:
    return Table({name: np.asarray(values) for name, values in columns.items()})


def write_gemm(folder: Path, body: str) -> Path:
    path = folder / "gemm_h200_sxm.csv.gz"
    header = "gpu,backend,version,kernel_source,dtype,m,n,k,latency_us\n"
    path.write_bytes(gzip.compress((header + body).encode()))
    return path


def test_a_csv_is_read_in_seconds_and_typed_columns(tmp_path: Path) -> None:
    path = write_gemm(tmp_path, "h200_sxm,vllm,1.0,k,fp8,1,128,256,7.5\n")
    read = read_csv(path, {"gpu", "backend", "version", "kernel_source", "dtype"})
    assert read["latency_s"] == pytest.approx([7.5e-6])
    assert read["n"].dtype == np.float64
    assert read["dtype"].tolist() == ["fp8"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("h200_sxm,vllm,1.0,k,fp8,1,128,256,fast\n", "column latency_us"),
        ("h200_sxm,vllm,1.0,k,fp8\n", "line 3: 5 cells under 9 columns"),
    ],
)
def test_a_malformed_table_is_named(tmp_path: Path, body: str, says: str) -> None:
    good = "h200_sxm,vllm,1.0,k,fp8,1,128,256,7.5\n"
    path = write_gemm(tmp_path, good + body)
    with pytest.raises(FileFormatError, match=says) as raised:
        read_csv(path, {"gpu", "backend", "version", "kernel_source", "dtype"})
    assert "gemm_h200_sxm.csv.gz" in str(raised.value)


def test_a_table_without_latencies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("m,n\n1,2\n")
    with pytest.raises(FileFormatError, match="no column latency_us"):
        read_csv(path, set())


def test_a_folder_without_tables_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gemm_h200_sxm\.csv\.gz"):
        Folder.of(tmp_path, "h200-sxm")
    with pytest.raises(InputError, match="no folder"):
        Folder.of(tmp_path / "nowhere", "h200-sxm")
    with pytest.raises(InputError, match=r"gemm_t4\.csv\.gz"):
        Folder.of(tmp_path, "t4")
    with pytest.raises(InputError, match="of a known device"):
        tabled(tmp_path)


def test_every_device_with_tables_is_in_the_catalogue() -> None:
    for device in devices():
        assert find(device).id == device
        assert table_name(device)
    assert set(kinds()) == {
        "gemm", "attention", "latent", "absorbed", "experts", "state", "collective",
    }  # fmt: skip


def test_the_parquet_layout_reads_as_the_tidy_one(tmp_path: Path) -> None:
    """Columns, units and paths as in aiconfigurator-core 0.12.0."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder = tmp_path / "h200_sxm" / "attention" / "vllm" / "0.24.0"
    folder.mkdir(parents=True)
    row = {
        "framework": "VLLM", "version": "0.24.0", "device": "NVIDIA H200", "op_name": "x",
        "kernel_source": "fa3", "batch_size": 32, "isl": 1, "num_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "beam_width": 1, "attn_dtype": "bfloat16",
        "kv_cache_dtype": "fp8", "step": 1023, "window_size": 0, "latency": 0.0125,
    }  # fmt: skip
    whole = pyarrow.table({name: [value] for name, value in row.items()})
    parquet.write_table(whole, folder / "generation_attention_perf.parquet")
    assert usual_source(tmp_path).startswith("aiconfigurator-core")
    assert usual_source(tmp_path / "h200_sxm") == "h200_sxm"
    read = Folder.of(tmp_path, "h200-sxm").read("attention")
    assert read is not None
    seen = {name: read[name].tolist()[0] for name in ("backend", "kv_dtype", "batch", "kv_heads")}
    assert seen == {"backend": "vllm", "kv_dtype": "fp8", "batch": 32, "kv_heads": 8}
    assert read["kv_tokens"].tolist() == [1024]
    assert read["latency_s"] == pytest.approx([12.5e-6])


def test_mistakes_of_the_public_tables_are_not_laid_on_others() -> None:
    rows = table(
        gpu=["t4"], backend=["vllm"], dtype=["fp8_block"], m=[1.0], k=[4096.0], latency_s=[1e-5]
    )
    assert len(screens.screened("gemm", rows, public=True).table) == 0
    assert len(screens.screened("gemm", rows, public=False).table) == 1


def test_broken_tables_are_left_out_with_their_reason() -> None:
    rows = table(
        gpu=["h200_sxm"] * 2,
        backend=["vllm", "sglang"],
        dtype=["fp8_block"] * 2,
        m=[1.0, 1.0],
        k=[4096.0, 4096.0],
        latency_s=[1e-4, 1e-5],
    )
    kept = screens.screened("gemm", rows)
    assert kept.table["backend"].tolist() == ["sglang"]
    assert "1 timed without a CUDA graph" in kept.note


def test_shapes_of_no_model_are_left_out() -> None:
    rows = table(
        gpu=["h200_sxm"] * 4,
        backend=["vllm"] * 4,
        heads=[32.0, 64.0, 8.0, 32.0],
        kv_heads=[8.0, 1.0, 8.0, 8.0],
        head_dim=[128.0, 128.0, 128.0, 512.0],
        latency_s=[1e-5] * 4,
    )
    kept = screens.screened("attention", rows)
    assert len(kept.table) == 1
    assert sum(kept.dropped.values()) == 3


def test_the_newest_version_and_the_usual_kernel_stay() -> None:
    rows = table(
        version=["1.3.0rc5"] * 3 + ["1.3.0rc20"] * 3,
        kernel_source=["a", "a", "a", "a", "a", "b"],
        latency_s=[1.0] * 6,
    )
    kept = screens.usual_kernel(screens.newest(screens.Screened(rows)))
    assert len(kept.table) == 2
    assert kept.dropped == {"of versions other than 1.3.0rc20": 3, "of kernels other than a": 1}


def test_a_later_version_with_a_few_shapes_does_not_replace_the_table() -> None:
    rows = table(version=["1.3.0rc20"] * 9 + ["1.3.0rc23"], latency_s=[1.0] * 10)
    assert screens.newest(screens.Screened(rows)).table.distinct("version") == ("1.3.0rc20",)


def test_a_product_has_the_flops_and_bytes_of_its_shape() -> None:
    rows = table(m=[2.0], n=[128.0], k=[256.0], latency_s=[1e-5])
    (operator,) = workloads.gemm(rows, "bfloat16", VLLM)
    assert operator.flops == 2 * 2 * 128 * 256
    assert operator.weight_bytes == 128 * 256 * 2
    assert operator.activation_bytes == 2 * (128 + 256) * 2
    # quantised activations are scaled by a kernel of their own, which the row contains
    assert operator.launches == 1
    assert workloads.gemm(rows, "fp8", VLLM)[0].launches == 1 + VLLM.quantise_dynamic


def test_a_window_bounds_what_attention_reads() -> None:
    rows = table(
        batch=[3.0], heads=[32.0], kv_heads=[8.0], window=[128.0], head_dim=[64.0],
        kv_tokens=[4096.0], latency_s=[1e-5],
    )  # fmt: skip
    (operator,) = workloads.attention(rows, "fp8", VLLM)
    assert operator.name == "window_attention"
    assert operator.kv_read_bytes == 3 * 128 * 8 * 2 * 64
    assert operator.blocks == 3 * 8


def test_rows_are_cut_without_losing_their_constants() -> None:
    rows = table(m=[1.0, 2.0], n=[8.0, 16.0], k=[256.0, 256.0], latency_s=[1e-6, 2e-6])
    whole = workloads.Rows(
        workloads.gemm(rows, "bfloat16", VLLM), rows["latency_s"], np.array([0, 1]), np.zeros(2)
    )
    cut = whole.where(np.array([False, True]))
    assert cut.operators[0].flops.tolist() == [2 * 2 * 16 * 256]
    assert cut.operators[0].launches == 1
    assert cut.measured_s.tolist() == [2e-6]


def moe(tokens: float, experts: float, topk: float, ep: float, distribution: str) -> Table:
    return table(
        tokens=[tokens], experts=[experts], topk=[topk], ep=[ep], distribution=[distribution]
    )


def test_balanced_routing_touches_as_many_experts_as_it_can() -> None:
    touched, routed = expert_load(moe(16, 64, 8, 1, "balanced"))
    assert (touched[0], routed[0]) == (64, 128)
    touched, routed = expert_load(moe(4, 64, 8, 4, "balanced"))
    assert (touched[0], routed[0]) == (8, 8)


def test_a_power_law_touches_fewer_and_loads_the_busiest_rank() -> None:
    """Bounds that hold for any draw: no more than all experts, at least an even share."""
    touched, routed = power_law_load((64, 128, 8, 4), 1.2)
    assert touched < 32
    assert routed > 64 * 8 / 4
    # with one rank nothing is lost: all tokens stay
    assert power_law_load((64, 128, 8, 1), 1.2)[1] == pytest.approx(64 * 8)
