"""Headers of safetensors files: names, types, shapes and sizes of the tensors, never their data.

Format: 8 bytes of header length, little-endian; that much JSON, {name: {dtype, shape, data_offsets}};
the data, to which the offsets are relative (huggingface/safetensors, README).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

from roofcast.hardware.errors import FileFormatError, bad_file

_LENGTH: Final = struct.Struct("<Q")
MAX_HEADER_BYTES: Final = 100_000_000  # the reference implementation's own limit

# Bits an element, by the type names of the format. A type missing here is taken at its stored size.
_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor. `bytes` are those of its data in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


def read_header(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one file; FileFormatError where it is truncated or contradicts itself."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            length = _header_length(path, start, size)
            text = file.read(length)
    except OSError as error:
        raise bad_file(path, f"cannot be read ({error.strerror or error})") from error
    entries = _parse(path, text)
    entries.pop("__metadata__", None)
    room = size - _LENGTH.size - length
    return _apart(path, [_tensor(path, name, entry, room) for name, entry in entries.items()])


def _header_length(path: Path, start: bytes, size: int) -> int:
    if len(start) < _LENGTH.size:
        raise bad_file(path, f"{size} bytes are too few for a safetensors file")
    length: int = _LENGTH.unpack(start)[0]
    if length > MAX_HEADER_BYTES:
        raise bad_file(path, "not a safetensors file: its header length makes no sense")
    if length > size - _LENGTH.size:
        raise bad_file(path, f"truncated: a header of {length} bytes in a file of {size}")
    return length


def _parse(path: Path, text: bytes) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in found if names.count(name) > 1)
            raise bad_file(path, f"the header names {twice!r} twice")
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise bad_file(path, "the header is not valid JSON") from error
    if not isinstance(value, dict):
        raise bad_file(path, "the header is not a JSON object")
    return value


def _tensor(path: Path, name: str, entry: object, room: int) -> tuple[int, Tensor]:
    """One entry as (offset, tensor), its numbers checked against each other and the file."""
    if not isinstance(entry, Mapping):
        raise bad_file(path, "expected dtype, shape and data_offsets", where=name)
    dtype: object = entry.get("dtype")
    shape: object = entry.get("shape")
    offsets: object = entry.get("data_offsets")
    if not isinstance(dtype, str) or not _wholes(shape) or not _wholes(offsets):
        raise bad_file(path, "expected dtype, shape and data_offsets", where=name)
    if len(offsets) != 2 or offsets[1] < offsets[0]:
        raise bad_file(path, f"data_offsets {list(offsets)} are not a range", where=name)
    if offsets[1] > room:
        raise bad_file(path, "truncated: its data end beyond the file", where=name)
    stored = offsets[1] - offsets[0]
    if dtype in _BITS and (math.prod(shape) * _BITS[dtype] + 7) // 8 != stored:
        raise bad_file(path, f"{stored} bytes cannot hold {list(shape)} of {dtype}", where=name)
    return offsets[0], Tensor(name, dtype, tuple(shape), stored)


def _wholes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value
    )


def _apart(path: Path, placed: list[tuple[int, Tensor]]) -> tuple[Tensor, ...]:
    """The tensors in file order, which must not overlap."""
    placed.sort(key=lambda pair: (pair[0], pair[1].bytes))
    end = 0
    for offset, tensor in placed:
        if offset < end and tensor.bytes:
            raise bad_file(path, "overlaps the tensor before it", where=tensor.name)
        end = max(end, offset + tensor.bytes)
    return tuple(tensor for _, tensor in placed)
