"""Closed forms for visible and read cache entries, against counting token by token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.simulator import spans
from roofcast.simulator.architecture import AttentionCore, LatentCore


def core(**fields: object) -> AttentionCore:
    return AttentionCore(8, 2, 64, 64, **fields)  # type: ignore[arg-type]


def seen_by(position: int, attention: AttentionCore | LatentCore) -> int:
    """Entries the token at `position` attends to, counted from the definition."""
    compression = getattr(attention, "compression", 1)
    window = getattr(attention, "window", None)
    if window is not None and attention.chunked:
        return position % window + 1
    entries = (position + 1) // compression
    if window is not None:
        entries = min(entries, window)
    if attention.selected is not None:
        entries = min(entries, attention.selected)
    return entries


CORES = {
    "full": core(),
    "window": core(window=7),
    "chunked": core(window=7, chunked=True),
    "sparse": core(selected=5),
    "compressed": core(compression=4),
    "compressed and sparse": core(compression=4, selected=3),
    "latent": LatentCore(8, 512, 64, 128, 128),
    "sparse latent": LatentCore(8, 512, 64, 128, 128, selected=5),
}


@pytest.mark.parametrize("name", CORES)
@given(context=st.integers(0, 60), new=st.integers(1, 40))
def test_pairs_equal_a_count_token_by_token(name: str, context: int, new: int) -> None:
    counted = sum(seen_by(position, CORES[name]) for position in range(context, context + new))
    assert spans.pairs(CORES[name], np.array(float(context)), np.array(float(new))) == counted


@pytest.mark.parametrize("name", CORES)
@given(context=st.integers(0, 60))
def test_one_new_token_reads_what_it_sees(name: str, context: int) -> None:
    at, one = np.array(float(context)), np.array(1.0)
    assert spans.entries_read(CORES[name], at, one) == spans.visible(CORES[name], at)


@given(context=st.integers(0, 60), new=st.integers(1, 40))
def test_a_window_reads_the_union_of_what_its_tokens_see(context: int, new: int) -> None:
    union = {
        entry
        for position in range(context, context + new)
        for entry in range(max(0, position - 6), position + 1)
    }
    read = spans.entries_read(CORES["window"], np.array(float(context)), np.array(float(new)))
    assert read == len(union)


def test_llama_4_chunks_restart_at_their_multiples() -> None:
    chunk = core(window=8192, chunked=True)
    seen = spans.visible(chunk, np.array([0.0, 8191.0, 8192.0, 10000.0]))
    assert seen.tolist() == [1, 8192, 1, 10000 % 8192 + 1]
