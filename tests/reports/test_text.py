"""Numbers, lists and sentences as people read and type them."""

import doctest
import importlib
import math
import pkgutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofcast.reports
from roofcast.hardware.errors import InputError
from roofcast.reports import units, words
from roofcast.reports.ranges import numbers
from roofcast.reports.tables import Column, Table
from roofcast.simulator.insight import Batching

MODULES = [
    each.name
    for each in pkgutil.walk_packages(roofcast.reports.__path__, "roofcast.reports.")
    if not each.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(importlib.import_module(name), optionflags=flags).failed == 0


@given(st.floats(1e-12, 1e20))
def test_a_scaled_number_keeps_three_digits(value):
    number, unit = units.scaled(value, "B").split(" ")
    factor = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}[unit[:-1]]
    shown = float(number.replace(",", "")) * factor
    assert shown == pytest.approx(value, rel=0.0051)
    assert factor in {1, 1e18} or 1 <= shown / factor < 1000


@given(st.floats(1e-9, 59.9))
def test_a_time_keeps_three_digits(value):
    number, unit = units.seconds(value).split(" ")
    factor = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * factor == pytest.approx(value, rel=0.0051)
    assert 1 <= float(number) < 1000


@pytest.mark.parametrize("write", [units.significant, units.seconds, units.percent])
def test_what_is_unknown_is_a_dash(write):
    assert write(math.nan) == "–"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", [8]),
        ("1, 8,64", [1, 8, 64]),
        ("1:8", [1, 2, 4, 8]),
        ("1:100:x10", [1, 10, 100]),
        ("1k:3k:+1k", [1024, 2048, 3072]),
        ("3:3", [3]),
        ("0", [0]),
        ("8,8,1:8", [8, 1, 2, 4]),
    ],
)
def test_lists_and_ranges(text, expected):
    assert numbers(text, "batch") == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "1.5", "8:1", "1:8:x1", "1:8:+0", "1:8:3", "1:2:3:4", "0:8", "1,,2", "٣"],
)
def test_what_is_no_list(text):
    with pytest.raises(InputError, match="batch"):
        numbers(text, "batch")


def test_a_range_that_would_fill_memory_is_refused():
    with pytest.raises(InputError, match="more than 100000"):
        numbers("1:100000000:+1", "batch")


TABLE = Table(
    (
        Column("a", ["1", "22"]),
        Column("kept", ["x", "y"], right=False),
        Column("second to go", ["1", "2"], rank=1),
        Column("first to go", ["1", "2"], rank=2),
    )
)


def test_a_table_drops_the_least_important_columns():
    assert TABLE.fitted(TABLE.width) == (TABLE, [])
    fitted, dropped = TABLE.fitted(TABLE.width - 1)
    assert [column.header for column in fitted.columns] == ["a", "kept", "second to go"]
    assert dropped == ["first to go"]
    fitted, dropped = TABLE.fitted(1)
    assert [column.header for column in fitted.columns] == ["a", "kept"]
    assert fitted.plain() == " a  kept\n 1  x\n22  y"


def test_every_number_of_every_device_has_a_name():
    from roofcast.hardware.catalog import all_accelerators
    from roofcast.reports.device_text import named, written

    for device in all_accelerators():
        for key, value in device.known_numbers():
            assert named(key)
            assert written(key, value)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Batching(0, "memory", 0), "not even one sequence fits in memory"),
        (
            Batching(55, "memory", 55),
            "batching pays right up to the 55 sequences that memory holds",
        ),
        (Batching(1, "kv_cache", 9), "because the KV cache grows with it; memory holds 9"),
        (
            Batching(293, "compute", 3344),
            "up to about 290, where arithmetic takes over; memory holds 3,300",
        ),
    ],
)
def test_how_far_batching_pays_in_words(found, said):
    assert words.batching(found).endswith(said)


def test_shares_in_words_leave_out_slivers():
    shares = {"weights": 0.604, "compute": 0.391, "overhead": 0.005}
    assert words.split(shares) == "60 % reading weights, 39 % arithmetic"
    assert np.isclose(sum(shares.values()), 1)
