"""Safetensors headers: what the reference writer writes is read back, what is broken is refused."""

import json
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from roofcast.hardware.errors import FileFormatError
from roofcast.simulator.safetensors_file import Tensor, read_header


def write(path, entries, data=b"", *, header=None, length=None):
    """A file with that header; `length` overrides its stated length."""
    text = header if header is not None else json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype, shape, start, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_the_reference_writers_file(tmp_path):
    arrays = {
        "model.embed_tokens.weight": np.zeros((10, 4), np.float16),
        "model.norm.weight": np.zeros(4, np.float32),
        "empty": np.zeros((0, 4), np.int8),
    }
    path = tmp_path / "model.safetensors"
    save_file(arrays, path, metadata={"format": "pt"})
    assert set(read_header(path)) == {
        Tensor("model.embed_tokens.weight", "F16", (10, 4), 80),
        Tensor("model.norm.weight", "F32", (4,), 16),
        Tensor("empty", "I8", (0, 4), 0),
    }


def test_packed_types_and_unknown_ones(tmp_path):
    entries = {"a": entry("F4", [3, 32], 0, 48), "b": entry("F9_NEW", [7], 48, 60)}
    found = read_header(write(tmp_path / "x.safetensors", entries, bytes(60)))
    assert [tensor.bytes for tensor in found] == [48, 12]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"a": entry("F32", [4], 0, 16)}, "truncated: its data end beyond the file"),
        ({"a": entry("F32", [4], 0, 4)}, "4 bytes cannot hold"),
        ({"a": entry("F32", [1], 4, 0)}, "not a range"),
        ({"a": entry("F32", [-1], 0, 4)}, "expected dtype, shape"),
        ({"a": entry("F32", [1.5], 0, 4)}, "expected dtype, shape"),
        ({"a": entry(32, [1], 0, 4)}, "expected dtype, shape"),
        ({"a": [1, 2]}, "expected dtype, shape"),
        ({"a": {"dtype": "F32"}}, "expected dtype, shape"),
        ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, "overlaps"),
        ([1], "not a JSON object"),
    ],
)
def test_contradictions_are_named(tmp_path, entries, problem):
    path = write(tmp_path / "x.safetensors", entries, bytes(8))
    with pytest.raises(FileFormatError, match=problem):
        read_header(path)


def test_a_name_twice(tmp_path):
    one = json.dumps(entry("U8", [1], 0, 1))
    header = f'{{"a": {one}, "a": {one}}}'.encode()
    with pytest.raises(FileFormatError, match="names 'a' twice"):
        read_header(write(tmp_path / "x.safetensors", {}, b"0", header=header))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "too few"),
        (b"1234567", "too few"),
        (struct.pack("<Q", 10**6) + b"{}", "truncated: a header of 1000000"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "header length makes no sense"),
        (struct.pack("<Q", 2) + b"{]", "not valid JSON"),
        (struct.pack("<Q", 3) + b"\xff\xfe\xfd", "not valid JSON"),
        (struct.pack("<Q", 20000) + b"[" * 20000, "not valid JSON"),
    ],
)
def test_what_is_no_header_is_said_in_one_line(tmp_path, content, problem):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=problem) as caught:
        read_header(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_header(tmp_path / "none.safetensors")


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "model.safetensors"
    save_file({f"model.layers.{i}.w": np.zeros((4, 8), np.float16) for i in range(3)}, path)
    return path.read_bytes()


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_truncation_is_refused(tmp_path, valid, data):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(valid[: data.draw(st.integers(0, len(valid) - 1))])
    with pytest.raises(FileFormatError):
        read_header(path)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_flipped_bytes_are_read_or_refused(tmp_path, valid, data):
    broken = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.safetensors"
    path.write_bytes(bytes(broken))
    try:
        found = read_header(path)
    except FileFormatError:
        return
    assert sum(tensor.bytes for tensor in found) <= len(valid)
