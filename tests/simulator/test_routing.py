"""Expected distinct experts against closed forms and against routing tokens at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.simulator.routing import distinct_experts, popularity


def test_one_token_touches_top_k() -> None:
    assert distinct_experts(256, 8, 1) == pytest.approx(8)


def test_mixtral_two_tokens_by_hand() -> None:
    # 8 experts, 2 a token: 8 (1 - (6/8)^2) = 3.5
    assert distinct_experts(8, 2, 2) == pytest.approx(3.5)


def test_many_tokens_touch_all() -> None:
    assert distinct_experts(128, 8, 10_000) == pytest.approx(128)


def test_all_experts_active_is_exact() -> None:
    assert distinct_experts(4, 4, [1, 5]) == pytest.approx([4, 4])


@given(st.integers(1, 6), st.floats(0, 3), st.integers(1, 500))
def test_skew_never_touches_more_than_uniform(top_k: int, skew: float, tokens: int) -> None:
    assert distinct_experts(16, top_k, tokens, skew) <= distinct_experts(16, top_k, tokens) + 1e-9


@given(st.integers(2, 64), st.floats(0, 4))
def test_popularity_sums_to_top_k_and_is_a_chance(count: int, skew: float) -> None:
    top_k = max(1, count // 3)
    chance = popularity(count, top_k, skew)
    assert chance.sum() == pytest.approx(top_k)
    assert np.all(chance <= 1 + 1e-9)


@pytest.mark.parametrize("skew", [0.0, 0.6, 1.2])
@pytest.mark.parametrize("tokens", [1, 4, 32])
def test_expectation_equals_simulated_routing(skew: float, tokens: int) -> None:
    """Systematic sampling draws exactly top_k different experts a token with the given chances."""
    count, top_k, draws = 64, 6, 3000
    chance = popularity(count, top_k, skew)
    rng = np.random.default_rng(7)
    touched = np.empty(draws)
    for draw in range(draws):
        used = np.zeros(count, dtype=bool)
        for _ in range(tokens):
            order = rng.permutation(count)
            marks = rng.random() + np.arange(top_k)
            picked = np.searchsorted(np.cumsum(chance[order]), marks, side="right")
            used[order[np.minimum(picked, count - 1)]] = True
        touched[draw] = used.sum()
    error = touched.std() / np.sqrt(draws)
    assert distinct_experts(count, top_k, tokens, skew) == pytest.approx(
        touched.mean(), abs=4 * error + 1e-9
    )
