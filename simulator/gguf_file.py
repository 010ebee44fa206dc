"""Headers of GGUF files: metadata and tensor descriptions, never tensor data.

Read directly, because a forecast needs sizes in milliseconds and a header of a few megabytes is
plain to read; the tests check it against the `gguf` package. Format: magic, version, counts,
key-value pairs, tensor infos (ggml-org/ggml, docs/gguf.md).
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roofcast.hardware.errors import bad_file
from roofcast.simulator.formats import GGML_BLOCKS
from roofcast.simulator.safetensors_file import Tensor

Value = int | float | bool | str | list["Value"]

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_SCALARS: Final = {  # value types by their number in the file
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING: Final = 8
_ARRAY: Final = 9
_KEPT_ITEMS: Final = 1024  # longer arrays are vocabularies: skipped, not kept
_MAX_ENTRIES: Final = 1_000_000
_MAX_DEPTH: Final = 4

# Tensor types by their number in the file (gguf 0.19.0, GGMLQuantizationType).
TYPES: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
_BLOCKS: Final = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "F64": (1, 8),
    "I8": (1, 1), "I16": (1, 2), "I32": (1, 4), "I64": (1, 8),
    "MXFP4": (32, 17), "NVFP4": (64, 36),
    **{name.upper(): block for name, block in GGML_BLOCKS.items()},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gguf:
    """Metadata and tensors of one file. Long arrays (vocabularies) are kept as their length only."""

    metadata: dict[str, Value]
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]


def read_gguf(path: Path) -> Gguf:
    """The header of one GGUF file; FileFormatError where it is truncated or makes no sense."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(path, data).read()
    except OSError as error:
        raise bad_file(path, f"cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # mmap of an empty file
        raise bad_file(path, "empty, or not a regular file") from error


class _Reader:
    """A cursor over the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.at = 0

    def read(self) -> Gguf:
        if self.take(4) != _MAGIC:
            raise bad_file(self.path, "not a GGUF file")
        version = self.number(4)
        if version not in _VERSIONS:
            raise bad_file(self.path, f"GGUF version {version}; versions 2 and 3 are supported")
        tensors, pairs = self.number(10), self.number(10)
        if max(tensors, pairs) > _MAX_ENTRIES:
            raise bad_file(self.path, "not a usable GGUF file: its counts make no sense")
        metadata: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(pairs):
            key = self.text()
            if key in metadata or key in lengths:
                raise bad_file(self.path, f"the header gives {key!r} twice")
            value, length = self.value(self.number(4))
            if length is not None:
                lengths[key] = length
            if value is not None:
                metadata[key] = value
        return Gguf(metadata, lengths, self.tensors(tensors, metadata))

    def tensors(self, count: int, metadata: dict[str, Value]) -> tuple[Tensor, ...]:
        found: dict[str, tuple[int, Tensor]] = {}
        for _ in range(count):
            name = self.text()
            if name in found:
                raise bad_file(self.path, f"the header names {name!r} twice")
            found[name] = self.tensor(name)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise bad_file(self.path, "general.alignment must be a positive number")
        room = len(self.data) - math.ceil(self.at / alignment) * alignment
        for offset, tensor in found.values():
            if offset + tensor.bytes > room:
                problem = "truncated: its data end beyond the file"
                raise bad_file(self.path, problem, where=tensor.name)
        return tuple(tensor for _, tensor in found.values())

    def tensor(self, name: str) -> tuple[int, Tensor]:
        """(offset, tensor); dimensions stand innermost first in the file, here outermost first."""
        dimensions = self.number(4)
        if dimensions > 8:
            raise bad_file(self.path, f"{dimensions} dimensions", where=name)
        shape = tuple(self.number(10) for _ in range(dimensions))[::-1]
        kind, offset = self.number(4), self.number(10)
        if kind not in TYPES:
            raise bad_file(self.path, f"unknown tensor type {kind}", where=name)
        elements, size = _BLOCKS[TYPES[kind]]
        rows = math.prod(shape[:-1])
        if shape and shape[-1] % elements:
            raise bad_file(
                self.path, f"rows of {shape[-1]} are no whole blocks of {TYPES[kind]}", where=name
            )
        columns = shape[-1] if shape else 1
        return offset, Tensor(name, TYPES[kind], shape, rows * columns // elements * size)

    def value(self, kind: int, depth: int = 0) -> tuple[Value | None, int | None]:
        """(value, None) for a scalar or short array, (None, length) for a long array."""
        if kind in _SCALARS:
            return self.number(kind), None
        if kind == _STRING:
            return self.text(), None
        if kind != _ARRAY or depth > _MAX_DEPTH:
            raise bad_file(self.path, f"unknown metadata type {kind}")
        item, count = self.number(4), self.number(10)
        if count > len(self.data) - self.at:
            raise self.truncated()
        if item in _SCALARS and count > _KEPT_ITEMS:
            self.take(_SCALARS[item].size * count)
            return None, count
        if item == _STRING and count > _KEPT_ITEMS:
            self.skip_texts(count)
            return None, count
        items = [self.value(item, depth + 1)[0] for _ in range(count)]
        return [entry for entry in items if entry is not None], count

    def skip_texts(self, count: int) -> None:
        unpack, size, at = _SCALARS[10].unpack_from, len(self.data), self.at
        for _ in range(count):
            if at + 8 > size:
                raise self.truncated()
            at += 8 + unpack(self.data, at)[0]
        if at > size:
            raise self.truncated()
        self.at = at

    def number(self, kind: int) -> int:
        """A scalar of that value type."""
        layout = _SCALARS[kind]
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def text(self) -> str:
        raw = self.take(self.number(10))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise bad_file(self.path, "the header holds text that is not UTF-8") from error

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise self.truncated()
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def truncated(self) -> Exception:
        return bad_file(self.path, "truncated: the header ends beyond the file")
