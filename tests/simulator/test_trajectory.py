"""A reply: prefill, then one step a token, each over a longer cache."""

import numpy as np
import pytest

from roofcast.hardware.errors import InputError
from roofcast.simulator.trajectory import decode
from tests.simulator.machines import flat_setup


def test_a_reply_of_n_tokens_is_one_prefill_and_n_minus_one_steps() -> None:
    reply = decode(flat_setup(), prompt=100, output=50, batch=4)
    assert reply.itl_s.shape == (49,)
    assert reply.steps.context.tolist() == list(range(100, 149))
    assert reply.output_tokens == 50
    assert reply.total_s == pytest.approx(reply.ttft_s + reply.itl_s.sum())
    assert reply.tokens_per_s == pytest.approx(4 * 50 / reply.total_s)


def test_each_step_equals_the_forecast_at_its_context() -> None:
    where = flat_setup()
    reply = decode(where, prompt=10, output=5)
    assert reply.itl_s[2] == pytest.approx(float(where.decode(1, 12).step_time_s))


def test_steps_grow_with_the_cache_by_its_bytes() -> None:
    reply = decode(flat_setup(), prompt=100, output=1000)
    # two layers, K and V of two heads of 64 in bf16 a token, at 1 TB/s
    assert np.diff(reply.itl_s) == pytest.approx(2 * 2 * 2 * 64 * 2 / 1e12)


def test_causes_sum_to_the_decode_time() -> None:
    reply = decode(flat_setup(1e-4), prompt=100, output=20, batch=2)
    assert sum(reply.decode_causes_s.values()) == pytest.approx(reply.total_s - reply.ttft_s)
    assert reply.decode_causes_s["overhead"] == pytest.approx(19 * 1e-4)


def test_one_token_needs_no_step() -> None:
    reply = decode(flat_setup(), prompt=100, output=1)
    assert reply.itl_s.size == 0
    assert reply.total_s == reply.ttft_s


@pytest.mark.parametrize(("prompt", "output"), [(4000, 98), (4097, 1)])
def test_beyond_the_context_limit_is_an_error(prompt: int, output: int) -> None:
    with pytest.raises(InputError, match="beyond the 4096 that toy allows"):
        decode(flat_setup(), prompt, output)


def test_an_empty_reply_is_an_error() -> None:
    with pytest.raises(InputError, match="at least 1 token"):
        decode(flat_setup(), 10, 0)
