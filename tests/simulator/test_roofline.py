"""Times of operators on a machine of round numbers: 1 TB/s, 100 TFLOP/s, 100 GB/s links."""

from dataclasses import replace

import numpy as np
import pytest

from roofcast.hardware.catalog import find
from roofcast.hardware.errors import UnknownSpecError
from roofcast.hardware.profile import Curve, Parameter, Profile, ideal
from roofcast.simulator.operators import Operator
from roofcast.simulator.roofline import Roofs, along, operator_time
from tests.simulator.machines import DEVICE


def profile(**values: float) -> Profile:
    parameters = {
        name.replace("__", "."): Parameter(value, "", "assumed") for name, value in values.items()
    }
    return Profile("test", "toy", "test", "by hand", parameters=parameters)


def gemm(**fields: object) -> Operator:
    base = Operator("qkv_proj", "gemm", "bf16", "bf16", 4.0, rows=np.array(1.0))
    return replace(base, **fields)  # type: ignore[arg-type]


def test_the_larger_roof_holds() -> None:
    memory = operator_time(gemm(weight_bytes=np.array(1e9)), Roofs(DEVICE, ideal("toy")))
    assert memory.total_s == pytest.approx(1e9 / 1e12)
    both = gemm(weight_bytes=np.array(1e9), flops=np.array(1e12))
    assert operator_time(both, Roofs(DEVICE, ideal("toy"))).total_s == pytest.approx(1e12 / 1e14)


def test_efficiencies_and_fixed_costs_come_from_the_profile() -> None:
    achieved = profile(gemm__bandwidth_efficiency=0.8, gemm__fixed_s=2e-6)
    time = operator_time(gemm(weight_bytes=np.array(1e9)), Roofs(DEVICE, achieved))
    assert time.total_s == pytest.approx(1e9 / (0.8 * 1e12) + 4 * 2e-6)
    assert time.fixed_s == pytest.approx(8e-6)


def test_a_format_of_its_own_overrides_the_kind() -> None:
    achieved = profile(gemm__bandwidth_efficiency=0.8, gemm__bandwidth_efficiency__fp8=0.5)
    fp8 = gemm(weight_bytes=np.array(1e9), format="fp8")
    assert operator_time(fp8, Roofs(DEVICE, achieved)).total_s == pytest.approx(2e-3)


def test_a_smooth_join_is_above_both_roofs_and_below_their_sum() -> None:
    smooth = profile(gemm__exponent=4.0)
    both = gemm(weight_bytes=np.array(1e9), flops=np.array(1e11))
    total = float(operator_time(both, Roofs(DEVICE, smooth)).total_s)
    assert total == pytest.approx(1e-3 * 2**0.25)


def test_a_loop_bounds_what_no_roof_explains() -> None:
    """4 layers of k = 1024 at 1 us per 4096: 4 x 1 us x (1/4)^0.5 = 2 us, whatever the bytes."""
    looped = profile(gemm__loop_s=1e-6, gemm__loop_exponent=0.5)
    small = gemm(weight_bytes=np.array(1.0), depth=np.array(1024.0), repeats=4.0)
    time = operator_time(small, Roofs(DEVICE, looped))
    assert time.total_s == pytest.approx(2e-6)
    assert time.serial_s == pytest.approx(2e-6)


def test_a_taller_tile_walks_its_loop_longer() -> None:
    """(1 + 384 / 128)^0.5 = 2."""
    looped = profile(gemm__loop_s=1e-6, gemm__loop_rows_exponent=0.5)
    tall = gemm(depth=np.array(4096.0), rows=np.array(384.0))
    assert operator_time(tall, Roofs(DEVICE, looped)).total_s == pytest.approx(2e-6)


def test_blocks_queue_for_the_compute_units() -> None:
    """1000 pieces of 2 us on 100 units take 20 us."""
    queued = profile(attention__block_s=2e-6)
    many = Operator("attention", "attention", "bf16", "bf16", 1.0, blocks=np.array(1000.0))
    units = replace(DEVICE, compute_units=100)
    assert operator_time(many, Roofs(units, queued)).total_s == pytest.approx(20e-6)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
def test_joins_of_any_exponent_follow_the_formula(exponent: float) -> None:
    smooth = profile(gemm__exponent=exponent, gemm__loop_s=4e-3)
    both = gemm(weight_bytes=np.array(3e9), flops=np.array(1e11), depth=np.array(4096.0))
    expected = (3e-3**exponent + 1e-3**exponent + 4e-3**exponent) ** (1 / exponent)
    assert operator_time(both, Roofs(DEVICE, smooth)).total_s == pytest.approx(expected)


def test_activations_a_kernel_repeats_count_so_often() -> None:
    repeated = profile(experts__activation_factor=3.0)
    down = Operator(
        "experts_down", "experts", "bf16", "bf16", 1.0,
        weight_bytes=np.array(1e9), activation_bytes=np.array(1e9),
    )  # fmt: skip
    assert operator_time(down, Roofs(DEVICE, repeated)).total_s == pytest.approx(4e-3)


def test_the_most_specific_parameter_holds() -> None:
    several = profile(
        attention__fixed_s=1e-6,
        attention__fixed_s__fp8=2e-6,
        attention__fixed_s__window_attention=3e-6,
        attention__fixed_s__window_attention__fp8=4e-6,
    )
    roofs = Roofs(DEVICE, several)

    def fixed(name: str, stored: str) -> float:
        operator = Operator(name, "attention", "bf16", stored, 1.0)
        return float(operator_time(operator, roofs).fixed_s)

    pairs = [("attention", "bf16"), ("attention", "fp8"), ("window_attention", "bf16")]
    seen = [*(fixed(*pair) for pair in pairs), fixed("window_attention", "fp8")]
    assert seen == pytest.approx([1e-6, 2e-6, 3e-6, 4e-6])


def test_longer_matrices_stream_faster_where_measured_so() -> None:
    """Two matrices of 64 MiB, four times what is quoted: twice the bandwidth at an exponent of 1/2."""
    growing = profile(gemm__bandwidth_efficiency=0.25, gemm__bandwidth_growth=0.5)
    two = gemm(weight_bytes=np.array(2.0 * (1 << 26)), launches=2.0)
    time = operator_time(two, Roofs(DEVICE, growing))
    assert time.total_s == pytest.approx(2 * (1 << 26) / (0.5 * 1e12))
    quoted = gemm(weight_bytes=np.array(float(1 << 24)), launches=1.0)
    assert operator_time(quoted, Roofs(DEVICE, growing)).total_s == pytest.approx(
        (1 << 24) / 0.25e12
    )


def test_a_curve_multiplies_the_roof_not_the_fixed_part() -> None:
    curved = replace(
        profile(gemm__fixed_s=1e-6), curves={"gemm.rows": Curve("rows", (1.0, 16.0), (2.0, 1.0))}
    )
    ops = gemm(weight_bytes=np.array(1e9), rows=np.array([1.0, 4.0, 64.0]))
    times = operator_time(ops, Roofs(DEVICE, curved)).total_s
    assert times == pytest.approx([2e-3 + 4e-6, 1.5e-3 + 4e-6, 1e-3 + 4e-6])


def test_a_collective_pays_latency_and_its_link() -> None:
    reduce = Operator(
        "all_reduce", "collective", "bf16", "bf16", 10.0, link_bytes=np.array(1e8), peers=4
    )
    slow = profile(collective__latency_s=5e-6, collective__bandwidth_efficiency=0.5)
    assert operator_time(reduce, Roofs(DEVICE, slow)).total_s == pytest.approx(50e-6 + 2e-3)


def test_ranks_beyond_a_node_need_a_network() -> None:
    reduce = Operator("all_reduce", "collective", "bf16", "bf16", 1.0, peers=16)
    with pytest.raises(UnknownSpecError, match=r"16 ranks of toy outgrow one node of 8.*--network"):
        operator_time(reduce, Roofs(DEVICE, ideal("toy")))


def test_a_dtype_the_device_lacks_computes_in_the_next_wider_one() -> None:
    assert Roofs(DEVICE, ideal("toy")).peak("fp8") == ("bf16", 1e14)
    with pytest.raises(UnknownSpecError, match="toy has no known peak for fp32"):
        Roofs(DEVICE, ideal("toy")).peak("fp32")


def test_a_peak_that_nobody_states_is_named_where_matrix_units_would_run_it() -> None:
    """GB10's published sources give fp4 and fp32 alone; an A100 lacks fp8 but states bf16."""
    spark = replace(DEVICE, peak_flops_per_s={"fp32": 3e13, "fp4": 5e14})
    gap = Roofs(spark, ideal("toy")).gap("int8")
    assert "no peak for int8 or bf16 or fp16" in gap
    assert "fp32, 30 TFLOP/s" in gap
    assert Roofs(spark, ideal("toy")).gap("fp4") == ""
    assert Roofs(DEVICE, ideal("toy")).gap("fp8") == ""
    # an A10G's sources state fp32 alone, and it has tensor cores
    assert "no peak for bf16 or fp16" in Roofs(find("a10g"), ideal("a10g")).gap("bf16")
    # a processor without matrix units does compute in fp32
    plain = replace(DEVICE, peak_flops_per_s={"fp32": 3e13})
    assert Roofs(plain, ideal("toy")).gap("bf16") == ""


def test_what_the_datasheet_lacks_comes_from_the_measurement() -> None:
    bare = replace(DEVICE, memory_bandwidth_bytes_per_s=None, peak_flops_per_s={})
    measured = Profile(
        "cpu",
        "toy",
        "torch",
        "measured",
        roofs={"memory_bandwidth_bytes_per_s": 2e10, "peak_flops_per_s.bf16": 1e12},
    )
    roofs = Roofs(bare, measured)
    assert roofs.bandwidth_bytes_per_s == 2e10
    assert roofs.peak("bf16") == ("bf16", 1e12)
    with pytest.raises(UnknownSpecError, match="memory_bandwidth_bytes_per_s"):
        _ = Roofs(bare, ideal("toy")).bandwidth_bytes_per_s


def test_a_curve_passes_through_its_points() -> None:
    curve = Curve("rows", (1.0, 4.0, 16.0), (1.0, 3.0, 2.0))
    assert along(curve, np.array([1.0, 4.0, 16.0, 1000.0])).tolist() == [1.0, 3.0, 2.0, 2.0]
