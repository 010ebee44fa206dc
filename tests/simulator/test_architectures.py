"""Counts of 145 configurations against the transformers implementations themselves."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.simulator import cache
from tests.simulator import truth
from tests.simulator.truth import Row

ROWS = truth.rows()
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.checkpoint)


def test_there_are_145_rows_of_68_families() -> None:
    assert len(ROWS) == 145
    assert len({row.model_type for row in ROWS}) == 68


@each_row
def test_parameters(row: Row) -> None:
    assert row.architecture.parameters == row.truth["parameters"]


@each_row
def test_active_parameters(row: Row) -> None:
    assert row.architecture.active_parameters == row.truth["active_parameters"]


@each_row
def test_parts_sum_up_as_in_the_reference(row: Row) -> None:
    ours, reference = truth.parts(row.architecture), truth.reference_parts(row)
    if row.model_type in truth.PARTS_DIFFER:
        assert sum(ours.values()) == sum(reference.values())
    else:
        assert ours == reference


FACTS = {
    "kv_bytes_per_token": cache.kv_bytes_per_token,
    "kv_bytes_per_token_beyond_windows": cache.kv_bytes_per_token_beyond_windows,
    "state_bytes_per_sequence": cache.state_bytes_per_sequence,
}


@each_row
@pytest.mark.parametrize("quantity", FACTS)
def test_cache_facts(row: Row, quantity: str) -> None:
    reference: Any = row.truth[quantity]
    if reference is None:
        pytest.skip("the reference gives no such number: its cache grows in steps")
    ours = FACTS[quantity](row.architecture)
    assert (ours == reference) is not bool(row.differs(quantity))


@each_row
def test_caches_hold_what_the_reference_holds(row: Row) -> None:
    assert bool(list(truth.cache_errors(row))) is bool(row.differs("cache_bytes"))


@each_row
def test_flops_of_a_decode_step(row: Row) -> None:
    errors = dict(truth.flops_errors(row))
    assert len(errors) == 6
    assert max(map(abs, errors.values())) < 0.005, errors


@each_row
def test_flops_are_equal_but_for_the_named_differences(row: Row) -> None:
    if row.model_type in truth.FLOPS_DIFFER:
        assert truth.flops_left(row) < 0.005
    else:
        assert truth.flops_left(row) < 1e-9


def test_falcon_40b_keeps_as_many_kv_heads_as_it_has() -> None:
    row = next(row for row in ROWS if row.checkpoint == "tiiuae/falcon-40b")
    # 60 layers x 2 x 8 heads x 64 x 2 bytes; the reference broadcasts to 128 heads.
    assert cache.kv_bytes_per_token(row.architecture) == 122_880
    assert row.truth["kv_bytes_per_token_beyond_windows"] == 16 * 122_880
