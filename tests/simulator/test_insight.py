"""How far batching pays, against step times whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import CapacityError
from roofcast.hardware.profile import Parameter, Profile, ideal
from roofcast.simulator.api import Setup
from roofcast.simulator.insight import batching, largest_batch, largest_context, smallest_tensor
from roofcast.simulator.workload import Parallelism
from tests.simulator.machines import DEVICE, model


def on(device: Accelerator, profile: Profile | None = None, **options) -> Setup:
    return Setup(replace(model(**options), max_context=None), device, profile or ideal(device.id))


def test_batching_pays_until_caches_take_as_long_as_the_weights():
    at = on(DEVICE).decode(1, 4096)
    shared = float(at.weight_bytes)
    own = float(at.hbm_bytes) - shared
    found = batching(at)
    assert found.cause == "kv_cache"
    assert found.batch == pytest.approx(shared / own, rel=0.15)


def test_at_that_batch_throughput_is_half_of_what_any_batch_gives():
    where = on(DEVICE)
    found = batching(where.decode(1, 4096))
    there = float(where.decode(found.batch, 4096).tokens_per_s)
    assert there == pytest.approx(float(where.decode(10**6, 4096).tokens_per_s) / 2, rel=0.15)


def test_without_a_cache_batching_pays_up_to_the_ridge():
    # 2 FLOP per weight of 2 bytes: batch 10 is where 1e13 FLOP/s and 1e12 B/s meet.
    slow = replace(DEVICE, peak_flops_per_s={"bf16": 1e13})
    found = batching(on(slow).decode(1, 0))
    assert found.cause == "compute"
    assert found.batch == pytest.approx(10, abs=2)


def test_overhead_lets_batching_pay_longer():
    slow = Profile("slow", "toy", "torch", "", {"host.step_s": Parameter(1e-3, "s", "assumed")})
    assert (
        batching(on(DEVICE, slow).decode(1, 4096)).batch
        > batching(on(DEVICE).decode(1, 4096)).batch
    )


def test_experts_delay_the_end_and_never_hide_it():
    found = batching(on(DEVICE, experts=True).decode(1, 64))
    # With 8 experts, 2 of them used, a few tokens already touch all of them.
    assert found.batch > 4


def test_the_largest_batch_is_the_last_that_fits():
    where = on(DEVICE)
    contexts = np.array([100.0, 4096.0, 100_000.0])
    largest = largest_batch(where.decode(1, contexts))
    assert np.all(where.decode(largest, contexts).memory.fits)
    assert not np.any(where.decode(largest + 1, contexts).memory.fits)


def test_the_largest_context_is_the_last_that_fits():
    where = on(DEVICE)
    batches = np.array([100.0, 1000.0])
    largest = largest_context(where.decode(batches, 1))
    assert np.all(where.decode(batches, largest).memory.fits)
    assert not np.any(where.decode(batches, largest + 1).memory.fits)


def test_a_model_that_does_not_fit_has_no_batch():
    small = replace(DEVICE, memory_capacity_bytes=10**6)
    found = batching(on(small).decode(1, 100))
    assert (found.batch, found.cause, found.limit) == (0, "memory", 0)
    with pytest.raises(CapacityError, match="does not fit on the 8 x toy"):
        smallest_tensor(on(small), 100, 1)


def test_the_smallest_tensor_parallelism_that_holds_a_batch():
    where = on(DEVICE)
    single = int(largest_batch(where.decode(1, 4096)))
    assert smallest_tensor(where, 4096, single) == 1
    ranks = smallest_tensor(where, 4096, single + 1)
    assert ranks == 2
    spread = Setup(where.architecture, DEVICE, where.profile, Parallelism(tensor=2))
    assert bool(spread.decode(single + 1, 4096).memory.fits)
