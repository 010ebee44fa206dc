"""Plans: hand-worked costs, invariants of the search, objectives that cannot be met, bad input."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from roofcast.hardware.catalog import find
from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator import Parallelism
from roofcast.simulator.layouts import complaint, refusal
from roofcast.simulator.models import load
from roofcast.simulator.planning.asked import Asked, Options
from roofcast.simulator.planning.candidates import Rejections, candidates, layouts
from roofcast.simulator.planning.plan import NO_PRICE, Plan, plan
from roofcast.simulator.planning.prices import Power, Price, listed, watts
from roofcast.simulator.planning.service import LIMITS
from roofcast.simulator.planning.speculation import Speculation, accepted, break_even, draft_bytes
from roofcast.simulator.planning.traffic import (
    Lengths,
    Objectives,
    Traffic,
    from_trace,
    lognormal,
    observed,
    uniform,
)
from roofcast.simulator.requests import requests
from roofcast.simulator.simulation import simulation

LLAMA = load("llama-3.1-8b")
CHAT = Traffic(Lengths(1000), Lengths(200), rate_per_s=20)
ANYTHING = Objectives()
FLOOR = Options(profile="ideal", pipeline=(1,))


def asked(
    *devices: str,
    model: str = "llama-3.1-8b",
    traffic: Traffic = CHAT,
    objectives: Objectives = ANYTHING,
    options: Options = FLOOR,
    **more: object,
) -> Asked:
    places = tuple(find(name) for name in devices)
    return Asked(load(model), traffic, objectives, places, options, **more)  # type: ignore[arg-type]


def ids(found: Plan) -> list[tuple[str, Parallelism, int]]:
    return [(d.where.device.id, d.where.parallelism, d.replicas) for d in found.deployments]


# Layouts


@pytest.mark.parametrize(
    ("model", "layout", "reason"),
    [
        ("llama-3.1-8b", Parallelism(3), "TP 3 does not divide the 32 attention heads"),
        ("qwen2.5-0.5b", Parallelism(7), "TP 7 neither divides the 2 KV heads nor is a multiple"),
        ("llama-3.1-8b", Parallelism(2, 64), "PP 64 is more than the 32 layers"),
        ("llama-3.1-8b", Parallelism(1, 1, 2, 2), "EP and attention groups need routed experts"),
        ("mixtral-8x7b", Parallelism(16, 1, 16), "EP 16 does not divide the 8 experts"),
        ("llama-3.1-70b", Parallelism(16), ""),  # 64 heads, 8 KV heads replicated
        ("deepseek-v3", Parallelism(8, 1, 8), ""),
    ],
)
def test_engines_refuse_layouts_with_a_reason(model: str, layout: Parallelism, reason: str) -> None:
    found = refusal(load(model), layout)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
    assert complaint(load(model), layout).endswith("take the fullest rank") == bool(reason)


def test_layouts_stay_within_a_replica_and_use_groups_for_experts_only() -> None:
    dense = list(layouts(LLAMA, Options(replica_devices=4)))
    assert {layout.devices for layout in dense} == {1, 2, 4}
    assert all(layout.data == layout.expert == 1 for layout in dense)
    mixed = list(layouts(load("mixtral-8x7b"), Options(replica_devices=4)))
    assert Parallelism(2, 1, 4, 2) in mixed
    assert len(set(mixed)) == len(mixed)


def test_every_deployment_is_tried_or_rejected_with_a_reason() -> None:
    question = asked("h100-sxm", "rtx-4090", model="llama-3.1-70b")
    rejected = Rejections(Counter(), {})
    found = list(candidates(question, rejected))
    whole = list(layouts(question.model, question.options))
    assert len(found) + sum(rejected.counts.values()) == 2 * len(whole)
    # 141 GB of weights: 70.6 of 76.4 usable GB on each of two H100 leave no room to sample; of 22.9 GB
    # on eight 4090 they take 17.6
    held = {(each.where.device.id, each.where.parallelism.devices) for each in found}
    assert held == {("h100-sxm-80gb", 4), ("h100-sxm-80gb", 8), ("rtx-4090", 8)}


def test_a_replica_beyond_a_node_needs_a_network() -> None:
    options = replace(FLOOR, tensor=(16,), replica_devices=16)
    with pytest.raises(CapacityError, match="needs a network between nodes"):
        plan(asked("h100-sxm", model="llama-3.1-70b", options=options))
    linked = replace(find("h100-sxm"), network_bytes_per_s=5e10)
    found = plan(Asked(load("llama-3.1-70b"), CHAT, Objectives(), (linked,), options))
    assert found.deployments[0].where.parallelism.devices == 16


# The search


def test_a_plan_meets_its_objectives_and_serves_all_of_the_traffic() -> None:
    goals = Objectives(ttft_s=0.5, tpot_s=0.02, percentile=95)
    found = plan(asked("h100-sxm", "l40s", objectives=goals))
    assert found.deployments
    for each in found.deployments:
        assert each.tpot_quantile_s <= 0.02 * (1 + 1e-3)
        assert each.ttft_quantile_s <= 0.5 * (1 + 1e-3)
        assert each.output_tokens_per_s == pytest.approx(20 * 200, rel=0.02)
        assert each.capacity * each.replicas >= 20 * (1 - 1e-6)
        assert each.headroom >= -1e-6
        assert bool(np.all(each.memory(found.asked).fits))


def test_the_cheapest_is_first_and_costs_what_its_devices_do() -> None:
    prices = {"h100-sxm-80gb": Price(3.0), "l40s": Price(0.5)}
    found = plan(asked("h100-sxm", "l40s", prices=prices))
    costs = [each.usd_per_hour for each in found.deployments]
    assert costs == sorted(costs)
    best = found.deployments[0]
    assert best.usd_per_hour == prices[best.where.device.id].rent_usd_per_hour * best.devices
    # USD an hour over the tokens of an hour
    per_million = best.usd_per_hour / (best.output_tokens_per_s * 3600 / 1e6)
    assert best.usd_per_million_tokens == pytest.approx(per_million)
    assert best.joules_per_token == pytest.approx(
        best.devices * watts(best.where.device, Power()) / best.output_tokens_per_s
    )


def test_ranks_are_what_they_say() -> None:
    goals = Objectives(tpot_s=0.05)
    fast = plan(asked("h100-sxm", objectives=goals, rank="latency")).deployments
    assert [d.tpot_quantile_s for d in fast] == sorted(d.tpot_quantile_s for d in fast)
    full = plan(asked("h100-sxm", objectives=goals, rank="throughput")).deployments
    gives = [d.capacity / d.where.parallelism.devices for d in full]
    assert gives == sorted(gives, reverse=True)


def test_tighter_objectives_never_need_fewer_devices() -> None:
    needed = []
    for tpot_s in (0.05, 0.02, 0.012, 0.009):
        found = plan(asked("h100-sxm", objectives=Objectives(tpot_s=tpot_s)))
        needed.append(min(each.devices for each in found.deployments))
    assert needed == sorted(needed)
    assert needed[-1] > needed[0]


def test_twice_the_traffic_never_needs_less_and_about_twice() -> None:
    goals = Objectives(tpot_s=0.02)
    small, large = (
        plan(asked("h100-sxm", traffic=replace(CHAT, rate_per_s=rate), objectives=goals))
        for rate in (200, 400)
    )
    ratio = large.deployments[0].devices / small.deployments[0].devices
    assert 1.7 <= ratio <= 2.1


def test_memory_binds_where_nothing_else_is_asked() -> None:
    traffic = Traffic(Lengths(6000), Lengths(1000), users=64)
    best = plan(
        asked("rtx-4090", traffic=traffic, options=replace(FLOOR, tensor=(1,)))
    ).deployments[0]
    assert best.binds == LIMITS[2]
    assert best.replicas > 1  # a card holds about 41,000 tokens of the 416,000


def test_a_plan_says_where_its_steady_state_was_not_checked() -> None:
    """Prompts that take nine tenths of the time: their queue is no steady state to rely on."""
    prompts = Traffic(Lengths(8000), Lengths(4), rate_per_s=0.1)
    options = replace(FLOOR, tensor=(1,))
    calm = plan(asked("h100-sxm", traffic=prompts, options=options)).deployments[0]
    assert calm.certain
    full = replace(prompts, rate_per_s=0.95 * calm.capacity)
    busy = plan(asked("h100-sxm", traffic=full, options=options)).deployments[0]
    assert busy.replicas == 1
    assert busy.prompt_load > 0.8
    assert not busy.certain


def test_a_plan_bound_by_the_cache_hardly_preempts() -> None:
    """At the most that a replica can take, simulated: steps as long, next to none recomputed."""
    traffic = Traffic(Lengths(3000), Lengths(500), rate_per_s=1)
    options = replace(FLOOR, tensor=(4,))
    most = plan(asked("rtx-4090", traffic=traffic, options=options)).deployments[0]
    assert most.binds == LIMITS[2]
    full = replace(traffic, rate_per_s=0.999 * most.capacity)
    best = plan(asked("rtx-4090", traffic=full, options=options)).deployments[0]
    count = 3000
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1 / full.amount, count))
    trace = requests(arrivals * (count / full.amount) / arrivals[-1], 3000, 500)
    served = simulation(best.where, trace).run(trace)
    middle = slice(count // 5, 4 * count // 5)
    assert served.preemptions.sum() < 0.02 * count
    assert best.tpot_s == pytest.approx(served.tpot_s[middle].mean(), rel=0.05)


def test_users_in_flight_are_shared_by_the_replicas() -> None:
    traffic = Traffic(Lengths(1000), Lengths(200), users=400)
    best = plan(
        asked("h100-sxm", traffic=traffic, objectives=Objectives(tpot_s=0.015))
    ).deployments[0]
    # Little: in flight = decoding + those before their first token
    waiting = best.output_tokens_per_s / 200 * best.ttft_s
    assert best.batch * best.replicas + waiting == pytest.approx(400, rel=0.02)


def test_objectives_for_more_of_the_requests_leave_less_capacity() -> None:
    capacities = []
    for percentile in (50, 90, 99):
        goals = Objectives(tpot_s=0.02, percentile=percentile)
        found = plan(asked("h100-sxm", objectives=goals, options=replace(FLOOR, tensor=(1,))))
        capacities.append(found.deployments[0].capacity)
    assert capacities == sorted(capacities, reverse=True)


def test_prefix_hits_spare_prompts() -> None:
    cold, warm = (
        plan(asked("h100-sxm", traffic=replace(CHAT, prefix_hits=hits))).deployments[0]
        for hits in (0.0, 0.8)
    )
    assert warm.capacity > 1.3 * cold.capacity
    assert warm.ttft_s < cold.ttft_s


def test_fp8_weights_and_cache_are_options_with_capacity_of_their_own() -> None:
    options = replace(FLOOR, tensor=(1,), weight_dtypes=(None, "fp8"), kv_dtypes=(None, "fp8"))
    traffic = Traffic(Lengths(20_000), Lengths(500), rate_per_s=1)
    found = plan(asked("h100-sxm", traffic=traffic, options=options)).deployments
    capacity = {(d.weight_dtype, d.where.kv_dtype): d.capacity for d in found}
    assert capacity[("fp8", "fp8")] > capacity[(None, "fp8")] > capacity[(None, "bf16")]


def test_prompts_hold_all_stages_up_in_turn() -> None:
    """A prompt takes as long through four stages as through one; alone its compute is not divided."""
    one, four = (
        plan(
            asked(
                "h100-sxm",
                traffic=Traffic(Lengths(4000), Lengths(200), rate_per_s=0.1),
                options=replace(FLOOR, tensor=(1,), pipeline=(stages,)),
            )
        ).deployments[0]
        for stages in (1, 4)
    )
    assert four.where.parallelism.pipeline == 4
    assert four.ttft_s == pytest.approx(one.ttft_s, rel=0.1)
    assert four.capacity > 1.5 * one.capacity  # more room, and weights shared by more sequences


# Techniques


def test_tokens_a_step_by_leviathan() -> None:
    assert accepted(0.8, 4) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
    assert accepted(0.0, 4) == 1
    assert accepted(1.0, 4) == 5


def test_break_even_acceptance_solves_its_equation() -> None:
    needed = break_even(np.array([10.0, 10.0, 10.0]), np.array([14.0, 20.0, 60.0]), 3)
    assert accepted(float(needed[0]), 3) == pytest.approx(1.4)
    assert accepted(float(needed[1]), 3) == pytest.approx(2.0)
    assert np.isnan(needed[2])  # four tokens at most do not repay six times the step


def test_speculation_pays_for_few_users_and_not_for_many() -> None:
    """Verifying four positions is nearly free while weights bind, and not once arithmetic does."""
    drafted = replace(FLOOR, tensor=(1,), speculation=Speculation(3, 0.7, "ngram"))
    plain = replace(FLOOR, tensor=(1,))
    short = Traffic(Lengths(50), Lengths(400), users=2)

    def tpot(options: Options, traffic: Traffic) -> float:
        return plan(asked("h100-sxm", traffic=traffic, options=options)).deployments[0].tpot_s

    assert tpot(drafted, short) < 0.45 * tpot(plain, short)
    crowd = replace(short, users=900)
    assert tpot(drafted, crowd) > 0.9 * tpot(plain, crowd)


def test_a_draft_model_and_mtp_layers_take_memory() -> None:
    base = plan(asked("h100-sxm", options=replace(FLOOR, tensor=(1,)))).deployments[0]
    small = Speculation(3, 0.7, "llama-3.2-1b")
    assert draft_bytes(base.where, small) == load("llama-3.2-1b").weight_bytes
    options = replace(FLOOR, tensor=(1,), speculation=small)
    drafted = plan(asked("h100-sxm", options=options)).deployments[0]
    assert float(drafted.memory(asked("h100-sxm", options=options)).of("draft")) > 2e9
    with pytest.raises(InputError, match="has no next-token-prediction layers"):
        draft_bytes(base.where, Speculation(1, 0.9))
    deepseek = replace(base.where, architecture=load("deepseek-v3"))
    assert (
        10e9 < draft_bytes(deepseek, Speculation(1, 0.9)) < 25e9
    )  # 11.5 B in fp8, embeddings shared


def test_offloaded_experts_fit_and_cost_time() -> None:
    """30 B parameters in bf16 do not fit on 32 GB; with most experts on the host they do, slowly."""
    traffic = Traffic(Lengths(500), Lengths(200), users=1)
    options = replace(FLOOR, tensor=(1,), data=(1,))
    with pytest.raises(CapacityError, match="weights do not fit"):
        plan(asked("rtx-5090", model="qwen3-30b-a3b", traffic=traffic, options=options))
    away = replace(options, offload=0.7)
    slow = plan(
        asked("rtx-5090", model="qwen3-30b-a3b", traffic=traffic, options=away)
    ).deployments[0]
    whole = plan(
        asked("h100-sxm", model="qwen3-30b-a3b", traffic=traffic, options=options)
    ).deployments[0]
    # one user: 8 of 128 experts of 9.4 MB in 48 layers, 70 % of them over 63 GB/s
    over_pcie = 8 * 48 * 3 * 768 * 2048 * 2 * 0.7 / find("rtx-5090").pcie_bytes_per_s
    assert slow.tpot_s > over_pcie > 3 * whole.tpot_s


def test_two_pools_leave_decode_undisturbed() -> None:
    goals = Objectives(ttft_s=1.0, tpot_s=0.03)
    traffic = Traffic(Lengths(6000), Lengths(200), rate_per_s=60)
    options = replace(FLOOR, disaggregated=True)
    found = plan(asked("h100-sxm", traffic=traffic, objectives=goals, options=options))
    split = next(each for each in found.deployments if each.prefill is not None)
    assert split.prefill is not None
    pool = split.prefill
    assert pool.load < 1
    assert split.ttft_quantile_s <= 1.0 + 1e-6
    assert split.devices == split.replicas * split.where.parallelism.devices + (
        pool.replicas * pool.where.parallelism.devices
    )
    # 6000 tokens x 131,072 bytes over the ranks, each by its own 450 GB/s
    ranks = pool.where.parallelism.tensor
    assert pool.transfer_s == pytest.approx(6000 * 131_072 / ranks / 450e9)
    assert split.usd_per_hour == pytest.approx(split.devices * 3.99)


# Prices


def test_bought_devices_pay_off_and_draw_power() -> None:
    price = Price(purchase_usd=35_064, years=4)
    power = Power(usd_per_kwh=0.1, overhead=1.5, draw=0.8)
    # 1 USD an hour for four years of 8766 hours, and 0.56 kW x 1.5 x 0.1
    assert price.usd_per_hour(find("h100-sxm"), power) == pytest.approx(1.0 + 0.084)
    assert listed(find("h100-sxm")) == Price(3.99, source=find("h100-sxm").rent_note or "")
    assert listed(find("mi355x")) is None


def test_without_a_price_cost_cannot_rank() -> None:
    found = plan(asked("mi355x", "h100-sxm"))
    assert {each.where.device.id for each in found.deployments} == {"h100-sxm-80gb"}
    assert found.rejected[NO_PRICE] > 0
    by_speed = plan(asked("mi355x", "h100-sxm", rank="throughput"))
    assert {each.where.device.id for each in by_speed.deployments} == {"mi355x", "h100-sxm-80gb"}


# Traffic


def test_lengths_of_distributions() -> None:
    rng = np.random.default_rng(3)
    skewed = lognormal(1000, 3000)
    s = np.sqrt(np.log1p(skewed.variation**2))
    drawn = rng.lognormal(np.log(1000) - s**2 / 2, s, 400_000)
    assert np.mean(drawn) == pytest.approx(skewed.mean, rel=0.01)
    assert np.quantile(drawn, 0.95) == pytest.approx(3000, rel=0.02)
    assert np.quantile(drawn, 0.99) == pytest.approx(skewed.longest, rel=0.03)
    flat = uniform(200, 600)
    assert observed(rng.uniform(200, 600, 100_000)).deviation == pytest.approx(
        flat.deviation, rel=0.01
    )


def test_long_replies_decode_for_longer() -> None:
    """Half the replies have 100 tokens, half 300: a decoding one is at 125 on average, not at 100."""
    traffic = Traffic(Lengths(1000), observed([100, 300]), rate_per_s=1)
    assert traffic.decode_context == 1000 + (100**2 + 300**2) / (100 + 300) / 2


def test_a_trace_gives_rate_and_lengths(tmp_path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n1,300,10\n2,200,40\n")
    traffic = from_trace(path)
    assert traffic.rate_per_s == 1.0
    assert (traffic.prompt.mean, traffic.reply.mean) == (200, 20)


# What cannot be


def test_impossible_objectives_say_what_is_reachable_and_what_binds() -> None:
    found = plan(asked("h100-sxm", "l40s", objectives=Objectives(tpot_s=1e-4)))
    assert not found.deployments
    assert found.rejected[f"{LIMITS[0]} is missed even with one user"] == found.tried
    (best,) = found.reachable
    assert (best.name, best.bound) == ("TPOT", "memory")
    assert best.where.device.id == "h100-sxm-80gb"
    # eight ranks read 15 GB at 3.35 TB/s each
    assert best.seconds == pytest.approx(15.0e9 / 8 / 3.35e12, rel=0.05)


def test_a_model_that_fits_nowhere() -> None:
    with pytest.raises(CapacityError, match=r"deepseek-v3 runs on none of the 1 devices.*weights"):
        plan(asked("rtx-4090", model="deepseek-v3"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Price(0.0), "rent_usd_per_hour must be above 0, not 0"),
        (lambda: Price(purchase_usd=-1), "purchase_usd must be above 0"),
        (lambda: Price(1.0, 20_000), "a rent by the hour or a purchase, one of the two"),
        (lambda: Traffic(Lengths(10), Lengths(10)), "requests per second or concurrent users"),
        (lambda: Traffic(Lengths(10), Lengths(10), 1, 2), "one of the two"),
        (lambda: Traffic(Lengths(10), Lengths(10), 0), "traffic must be above 0, not 0"),
        (lambda: Traffic(Lengths(10), Lengths(10), 1, None, 1.0), "below 1, not 1"),
        (lambda: Objectives(tpot_s=0), "tpot_s must be above 0, not 0"),
        (lambda: Objectives(percentile=100), "from 50 to below 100, not at 100"),
        (lambda: lognormal(1000, 900), "between the mean and 3.87 times it"),
        (lambda: uniform(0, 10), "from at least 1 upwards"),
        (lambda: Options(tensor=(8,), replica_devices=4), "smallest layout to try has 8 devices"),
        (lambda: Speculation(0, 0.5), "at least 1 token, not 0"),
        (lambda: Speculation(2, 1.5), "a chance from 0 to 1, not 1.5"),
        (asked, "name at least one device"),
        (lambda: asked("l40s", prices={"h100-sxm-80gb": Price(1.0)}), "not among the devices"),
        (
            lambda: asked("l40s", traffic=Traffic(Lengths(200_000), Lengths(1), 1)),
            "beyond the 131,072 that llama-3.1-8b allows",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(make, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        make()
