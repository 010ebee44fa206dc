"""Samplers against their definitions: argmax, softmax, and the smallest set of mass p."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from roofcast.hardware.errors import InputError

torch = pytest.importorskip("torch")
sampling = pytest.importorskip("roofcast.calibrate.sampling")

pytestmark = pytest.mark.usefixtures("one_thread")
LOGITS = torch.tensor([[1.2, -0.5, 3.0, 0.0, 2.2, 2.2, -4.0, 1.0]])
DRAWS = 20_000


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def counts(sampler, logits=LOGITS, draws=DRAWS):
    tokens = sampler(logits.expand(draws, -1), generator())
    return np.bincount(tokens.numpy(), minlength=logits.shape[-1])


def smallest_set(probabilities, p):
    """The nucleus by its definition, a Python loop over the sorted tokens."""
    chosen, mass = set(), np.float32(0)
    for token in np.argsort(-probabilities, kind="stable"):
        if mass >= p:
            break
        chosen.add(int(token))
        mass += probabilities[token]
    return chosen


def test_greedy_takes_the_argmax():
    logits = torch.randn(5, 1000, generator=generator())
    assert torch.equal(sampling.greedy(logits), logits.argmax(-1))


@pytest.mark.parametrize("t", [0.5, 1.0, 1.7])
def test_temperature_frequencies_match_the_softmax(t):
    expected = torch.softmax(LOGITS[0].double() / t, -1).numpy()
    seen = counts(sampling.temperature(t))
    assert chisquare(seen, expected / expected.sum() * DRAWS).pvalue > 1e-3


@pytest.mark.parametrize("t", [0.5, 1.0])
@pytest.mark.parametrize("p", [0.3, 0.6, 0.9])
def test_top_p_frequencies_match_the_renormalised_nucleus(p, t):
    probabilities = torch.softmax(LOGITS[0] / t, -1).numpy()
    kept = smallest_set(probabilities, p)
    seen = counts(sampling.top_p(p, t))
    assert set(np.flatnonzero(seen)) == kept
    tokens = sorted(kept)
    expected = probabilities[tokens].astype(float)
    assert len(kept) == 1 or (
        chisquare(seen[tokens], expected / expected.sum() * DRAWS).pvalue > 1e-3
    )


@settings(max_examples=60, deadline=None)
@given(
    # Quarters make masses exact in float32, so that ties and exact hits of p are common.
    st.lists(st.integers(0, 8), min_size=1, max_size=12).filter(any),
    st.integers(1, 64),
)
def test_nucleus_is_the_smallest_set_of_mass_p(weights, p_64ths):
    probabilities = np.asarray(weights, np.float32) / 64
    p = min(p_64ths / 64, float(probabilities.sum()))
    for find in (sampling.nucleus, sampling._sorted_nucleus):
        mask = find(torch.from_numpy(probabilities[None]), p)[0].numpy()
        assert set(np.flatnonzero(mask)) == smallest_set(probabilities, p)


@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("p", [0.05, 0.9, 0.999])
def test_nucleus_by_rows_and_by_sorting_agree(p, spread):
    logits = spread * torch.randn(3, 5000, generator=generator())
    probabilities = torch.softmax(logits.bfloat16().float(), -1)  # bf16: many ties
    by_rows = sampling.nucleus(probabilities, p)
    by_sorting = sampling._sorted_nucleus(probabilities.double(), p)
    assert torch.equal(by_rows, by_sorting)


def test_top_p_of_one_is_plain_temperature():
    assert sampling.top_p(1.0, 0.8) == sampling.temperature(0.8)


def test_low_temperature_approaches_greedy_and_zero_is_greedy():
    logits = torch.randn(64, 500, generator=generator())
    assert sampling.temperature(0) is sampling.greedy
    for sampler in (sampling.temperature(1e-5), sampling.top_p(0.9, 1e-5)):
        assert torch.equal(sampler(logits, generator()), sampling.greedy(logits))


def test_a_seed_reproduces_the_draws():
    logits = torch.zeros(32, 1000)
    sampler = sampling.top_p(0.9)
    first, again = sampler(logits, generator(7)), sampler(logits, generator(7))
    assert torch.equal(first, again)
    assert not torch.equal(first, sampler(logits, generator(8)))


def test_draw_never_takes_a_token_of_weight_zero():
    weights = torch.tensor([[0.0, 1e-30, 0.0, 3.0, 0.0]]).expand(5000, -1)
    assert set(sampling.draw(weights, generator()).tolist()) == {3}


def test_draw_at_the_largest_uniform_number_stays_inside(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, 1.0))
    assert sampling.draw(torch.tensor([[0.2, 0.7, 0.0]])).tolist() == [1]


def test_bf16_logits_draw_from_their_float32_softmax():
    logits = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.bfloat16)
    expected = torch.softmax(logits[0].double(), -1).numpy()
    seen = counts(sampling.temperature(1.0), logits)
    assert chisquare(seen, expected * DRAWS).pvalue > 1e-3


@pytest.mark.parametrize(
    "make",
    [
        lambda: sampling.temperature(-1),
        lambda: sampling.temperature(float("nan")),
        lambda: sampling.top_p(0),
        lambda: sampling.top_p(1.1),
        lambda: sampling.top_p(0.5, -1),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(InputError, match="must be"):
        make()
