"""Finding a checkpoint's quantisation block, and typed access to its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from roofcast.hardware.errors import FileFormatError, unknown
from roofcast.simulator.config import Config

_NESTS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
_KEYS: Final = ("quantization_config", "compression_config")


@dataclass(frozen=True, slots=True)
class Block:
    """One quantisation block: its fields, and the config.json it was found in."""

    fields: Config
    model: Mapping[str, object]

    def size(self, *names: str, default: int) -> int:
        """A positive whole number under the first of `names` that is given."""
        for name in names:
            if self.fields.has(name):
                return self.fields.size(name, default)
        return default

    def listed(self, *names: str) -> tuple[str, ...] | None:
        """A list of strings under the first of `names` that is given; None if none is."""
        for name in names:
            entries = self.fields.names(name)
            if entries is not None:
                return entries
        return None

    def table(self, name: str) -> Mapping[str, object]:
        """A nested object, empty where null or absent."""
        return self.fields.section(name).fields


def find(config: Mapping[str, object], where: str) -> Block | None:
    """The block of a config.json: on the outer level, or beside the nested text model's fields."""
    for model in (config, *(config.get(nest) for nest in _NESTS)):
        if not isinstance(model, Mapping):
            continue
        for key in _KEYS:
            block = model.get(key)
            if block is None:
                continue
            if not isinstance(block, Mapping):
                raise FileFormatError(f"{where}: {key} must be an object, not {block!r:.40}")
            if block:
                return Block(section(block, f"{where}: {key}"), model)
    return None


def section(fields: Mapping[str, object], source: str) -> Config:
    """Typed access to one object of the block."""
    return Config(fields, {}, source=source)


def sections(parent: Config, name: str) -> dict[str, Config]:
    """The objects inside the object `name`, by key."""
    found = {}
    for key, value in parent.section(name).fields.items():
        if not isinstance(value, Mapping):
            raise parent.error(name, f"has an entry {key!r} that is not an object")
        found[key] = section(value, f"{parent.source}: {name}.{key}")
    return found


_KV_NAMES: Final = {
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_affine": "fp8",
    "static": "fp8",  # AutoFP8 writes the scheme of its fp8 cache scales
    "dynamic": "fp8",
    "nvfp4": "nvfp4",
    "nvfp4_affine": "nvfp4",
    "int8": "int8",
    "int4": "int4",
    "auto": None,
    "none": None,
}
_KV_BITS: Final = {
    ("float", 8): "fp8",
    ("float", 4): "nvfp4",
    ("int", 8): "int8",
    ("int", 4): "int4",
}


def kv_dtype(fields: Config) -> str | None:
    """The cache's element type, from `kv_cache_scheme` or `kv_cache_quant_algo`, text or object."""
    for name in ("kv_cache_scheme", "kv_cache_quant_algo"):
        value = fields.raw(name, None)
        if value is None:
            continue
        if isinstance(value, Mapping):
            return _kv_bits(section(value, f"{fields.source}: {name}"))
        text = fields.text(name).lower()
        if text not in _KV_NAMES:
            raise unknown(f"{fields.source}: {name}", text, _KV_NAMES)
        return _KV_NAMES[text]
    return None


def _kv_bits(scheme: Config) -> str:
    kind, bits = scheme.text("type", "float"), scheme.size("num_bits", 8)
    if (kind, bits) not in _KV_BITS:
        choices = ", ".join(f"{bits}-bit {kind}" for kind, bits in _KV_BITS)
        raise scheme.error("num_bits", f"says {bits}-bit {kind}; known caches are {choices}")
    return _KV_BITS[kind, bits]
