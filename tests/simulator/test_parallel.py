"""Collectives, pipeline stages and expert exchange, worked by hand and against chance itself."""

from dataclasses import replace

import numpy as np
import pytest

from roofcast.hardware import links
from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError, UnknownSpecError
from roofcast.hardware.profile import Parameter, Profile, ideal
from roofcast.simulator import Parallelism, setup
from roofcast.simulator.collectives import ranks_reached
from roofcast.simulator.operators import operators
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.prediction import forecast_pass
from roofcast.simulator.stages import layer_counts, stages
from roofcast.simulator.wire import wire_time
from roofcast.simulator.workload import Workload
from tests.simulator.machines import DEVICE, H, V, model

PLAIN = Profile("plain", "toy", "vllm", "nothing measured")
NETWORKED = replace(DEVICE, network_bytes_per_s=5e10)


def moved(work: Pass) -> dict[str, Operator]:
    return {op.name: op for op in operators(work) if op.kind == "collective"}


def collective(name: str, peers: int, link_bytes: float = 1e9) -> Operator:
    return Operator(
        name, "collective", "bf16", "bf16", 1.0, link_bytes=np.array(link_bytes), peers=peers
    )


# Media


def test_ranks_travel_on_the_narrowest_link_they_need() -> None:
    bridged = find("h100-nvl")  # NVLink joins pairs only
    assert [links.medium(bridged, n) for n in (2, 4, 8, 9)] == [
        *("scale_up", "pcie", "pcie", "network")
    ]
    assert links.medium(find("rtx-4090"), 2) == "host"  # no peer access between GeForce cards
    assert links.medium(find("l40s"), 2) == "pcie"
    assert links.medium(find("gb200"), 72) == "scale_up"


def test_the_ideal_profile_waits_for_nothing_and_fills_every_link() -> None:
    wire, latency = wire_time(collective("all_reduce", 4), DEVICE, ideal("toy"))
    assert (wire, latency) == (1e9 / 1e11, 0.0)


def test_without_measurements_links_reach_what_such_links_do() -> None:
    wire, latency = wire_time(collective("all_reduce", 4), DEVICE, PLAIN)
    assert wire == pytest.approx(1e9 / (0.74 * 1e11))
    assert latency == pytest.approx(5.3e-6)


def test_a_profile_may_know_one_pattern_or_one_number_of_ranks() -> None:
    known = {
        "collective.latency_s": Parameter(9e-6, "s", "measured"),
        "collective.latency_s.4": Parameter(4e-6, "s", "measured"),
        "collective.latency_s.dispatch": Parameter(2e-5, "s", "measured"),
    }
    profile = replace(PLAIN, parameters=known)
    cases = [("all_reduce", 2), ("all_reduce", 4), ("dispatch", 4)]
    seen = [float(wire_time(collective(*case), DEVICE, profile)[1]) for case in cases]
    assert seen == [9e-6, 4e-6, 2e-5]


def test_a_ring_over_two_nodes_uses_every_adapter() -> None:
    """Eight adapters of 50 GB/s a node carry an eighth each: 1e9 / 8 / 50e9 = 2.5 ms < 10 ms inside."""
    wire, _ = wire_time(collective("all_reduce", 16), NETWORKED, ideal("toy"))
    assert wire == pytest.approx(max(1e9 / 1e11, 1e9 / 8 / 5e10))
    slow = replace(DEVICE, network_bytes_per_s=5e9)
    assert wire_time(collective("all_reduce", 16), slow, ideal("toy"))[0] == pytest.approx(0.025)


def test_tokens_to_another_node_cross_one_adapter_each() -> None:
    """Of 15 other ranks 8 are in the other node."""
    wire, _ = wire_time(collective("dispatch", 16), NETWORKED, ideal("toy"))
    assert wire == pytest.approx(1e9 * (8 / 15) / 5e10)


def test_crossing_nodes_adds_latency() -> None:
    near = wire_time(collective("all_reduce", 8), NETWORKED, PLAIN)[1]
    far = wire_time(collective("all_reduce", 16), NETWORKED, PLAIN)[1]
    assert far - near == pytest.approx(15e-6)


def test_an_unknown_network_is_named() -> None:
    with pytest.raises(UnknownSpecError, match="outgrow one node of 8"):
        wire_time(collective("all_reduce", 16), DEVICE, PLAIN)


# Tensor ranks


def test_logits_are_gathered_once_a_step() -> None:
    gathered = moved(Pass(model(), Workload.decode(4, 100), Parallelism(tensor=4)))["logits_gather"]
    assert gathered.link_bytes == 4 * V * 2 * 3 / 4
    assert gathered.launches == 1


def test_tp2_is_slower_than_tp1_for_one_user_of_a_small_model_over_pcie() -> None:
    """65 sums of 8 us cost more than the 0.36 ms that halving 0.72 GB at 1 TB/s saves."""
    times = {}
    for tensor in (1, 2):
        where = setup(
            "smollm2-360m", "rtx-4090", profile=PLAIN, parallelism=Parallelism(tensor=tensor)
        )
        times[tensor] = float(where.decode(1, 1000).step_time_s)
    assert times[2] > times[1]
    linked = [
        setup("smollm2-360m", find("h100-sxm"), profile=ideal("h100-sxm-80gb"), parallelism=p)
        for p in (Parallelism(), Parallelism(tensor=2))
    ]
    one, two = (float(each.decode(1, 1000).step_time_s) for each in linked)
    assert two < one  # at the floor, which knows no latency, it would pay


def test_tp2_pays_for_one_user_of_a_large_model_over_nvlink() -> None:
    times = [
        float(
            setup(
                "llama-3.1-70b", "h100-sxm", profile=PLAIN, parallelism=Parallelism(tensor=tensor)
            )
            .decode(1, 1000)
            .step_time_s
        )
        for tensor in (1, 2, 4, 8)
    ]
    assert np.all(np.diff(times) < 0)
    assert times[0] / times[3] < 7.5  # never perfectly linear


# Pipeline stages


def test_stages_hold_every_layer_once() -> None:
    work = Pass(model(layers=7), Workload.decode(8, 100), Parallelism(pipeline=3))
    parts = [stage.architecture for stage in stages(work)]
    assert [len(part.layers) for part in parts] == list(layer_counts(7, 3)) == [2, 3, 2]
    assert [bool(part.embeddings) for part in parts] == [True, False, False]
    assert [bool(part.head) for part in parts] == [False, False, True]


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InputError, match="4 pipeline stages are more than the 2 layers"):
        list(stages(Pass(model(), Workload.decode(8, 100), Parallelism(pipeline=4))))


def test_the_slowest_stage_sets_the_pace() -> None:
    """Seven layers on two stages, three and four: two microbatches go round in twice the slower one."""
    layout = Parallelism(pipeline=2)
    work = Pass(model(layers=7), Workload.decode([1, 8], 1000), layout)
    step = forecast_pass(work, DEVICE, ideal("toy"))
    slow = max(
        float(forecast_pass(replace(stage, parallelism=Parallelism()), DEVICE, ideal("toy"))
              .step_time_s[1])
        for stage in stages(replace(work, workload=Workload.decode([1, 4], 1000)))
    )  # fmt: skip
    assert step.step_time_s[1] == pytest.approx(2 * slow, rel=1e-3)
    assert step.bubble_s[0] == 0  # one sequence meets no other


def test_stages_hand_hidden_vectors_on() -> None:
    sent = moved(Pass(model(layers=4), Workload.decode(8, 100), Parallelism(pipeline=4)))["send"]
    assert sent.link_bytes == 3 * (2 * H * 2)  # three times, two sequences a microbatch
    assert sent.launches == 3


def test_parts_still_sum_to_the_step_over_stages() -> None:
    work = Pass(model(layers=7), Workload.decode([1, 8], 1000), Parallelism(tensor=2, pipeline=3))
    step = forecast_pass(work, DEVICE, PLAIN)
    parts = sum(time.total_s for time in step.times) + step.host_s + step.bubble_s
    assert parts == pytest.approx(step.step_time_s)
    assert sum(step.causes.values()) == pytest.approx(step.step_time_s)


# Experts under attention groups


def test_a_token_reaches_as_many_ranks_as_drawing_experts_says() -> None:
    rng = np.random.default_rng(1)
    drawn = np.argsort(rng.random((20_000, 64)), axis=1)[:, :8] // 8  # 8 of 64 experts, 8 a rank
    others = np.mean([len(set(row.tolist()) - {0}) for row in drawn])
    assert ranks_reached(8, 8) == pytest.approx(others, rel=0.06)


def test_point_to_point_exchange_moves_each_token_to_its_ranks_and_back() -> None:
    layout = Parallelism(data=4, expert=4)
    found = moved(Pass(model(experts=True), Workload.decode(8, 100), layout))
    one = 2 * H * 2 * ranks_reached(4, 2)  # two tokens a group
    assert found["dispatch"].link_bytes == pytest.approx(2 * one)  # two layers
    assert found["combine"].link_bytes == found["dispatch"].link_bytes
    assert found["dispatch"].peers == 4
    assert "all_reduce" not in found


def test_gathering_exchange_moves_all_tokens_everywhere() -> None:
    layout = Parallelism(data=4, expert=4)
    found = moved(Pass(model(experts=True), Workload.decode(8, 100), layout, engine="vllm"))
    assert found["all_gather"].link_bytes == 2 * (8 * H * 2) * 3 / 4
    assert found["reduce_scatter"].link_bytes == found["all_gather"].link_bytes


def test_experts_on_tensor_ranks_need_one_sum_only() -> None:
    layout = Parallelism(tensor=4, expert=4)
    found = moved(Pass(model(experts=True), Workload.decode(8, 100), layout))
    assert set(found) == {"all_reduce", "logits_gather"}
    assert found["all_reduce"].launches == 2 * 2 + 1
