"""A plan over twelve devices, all parallelisms of up to eight devices and four pairs of dtypes, with
objectives; run with `pytest tests/benchmarks -s`. Processor time counts: others may use the machine."""

from time import perf_counter, process_time

import pytest

from roofcast.hardware.catalog import find
from roofcast.simulator.models import load
from roofcast.simulator.planning.asked import Asked, Options
from roofcast.simulator.planning.plan import plan
from roofcast.simulator.planning.traffic import Objectives, Traffic, lognormal

DEVICES = (
    *("a100-sxm-80gb", "h100-sxm", "h100-nvl", "h100-pcie", "h200-sxm", "b200-sxm"),
    *("b300-sxm", "gb200", "l40s", "rtx-pro-6000-blackwell-server", "mi300x", "mi325x"),
)
REPEATS, LIMIT_S = 3, 3.0


@pytest.mark.parametrize("model", ["llama-3.1-70b", "qwen3-235b-a22b"])
def test_a_plan_over_twelve_devices_takes_less_than_three_seconds(model: str) -> None:
    asked = Asked(
        model=load(model),
        traffic=Traffic(lognormal(1000, 3000), lognormal(300, 900), rate_per_s=40),
        objectives=Objectives(ttft_s=1.0, tpot_s=0.05),
        devices=tuple(find(name) for name in DEVICES),
        options=Options(
            weight_dtypes=(None, "fp8"), kv_dtypes=(None, "fp8"), pipeline=(1, 2, 4, 8)
        ),
        rank="throughput",
    )
    wall, cpu = [], []
    for _ in range(REPEATS):
        start, busy = perf_counter(), process_time()
        found = plan(asked)
        wall.append(perf_counter() - start)
        cpu.append(process_time() - busy)
    print(
        f"\n{model}: {found.tried:,} deployments, {len(found.deployments):,} meet the objectives: "
        f"fastest of {REPEATS} {min(wall):.2f} s ({min(cpu):.2f} s of processor time)"
    )
    assert found.deployments
    assert min(cpu) < LIMIT_S
