"""mxfp4 (gpt-oss), torchao and AMD Quark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roofcast.hardware.errors import unknown
from roofcast.simulator.config import Config
from roofcast.simulator.formats import INT8, INT8_W8A16, MXFP4, WeightFormat
from roofcast.simulator.quantization.block import Block, kv_dtype, section, sections
from roofcast.simulator.quantization.patterns import globs, modules, prefixed
from roofcast.simulator.quantization.scheme import Quantization, Rule, kept
from roofcast.simulator.quantization.storage import Inputs, Strategy, Weights, storage


def read_mxfp4(block: Block) -> Quantization:
    """gpt-oss: only the routed experts are mxfp4, their biases stay bf16."""
    excluded = block.listed("modules_to_not_convert") or ()
    rules = (Rule(modules(excluded), None), kept(), Rule(modules(["experts"]), MXFP4))
    return Quantization("mxfp4", None, rules)


# ---- torchao ----------------------------------------------------------------------------------


def read_torchao(block: Block) -> Quantization:
    """The configs whose storage is certain: int4 and int8 weights, int8 and fp8 with activations."""
    fields = block.fields
    given = fields.raw("quant_type")
    excluded = block.listed("modules_to_not_convert") or ()
    rules = [Rule(modules(excluded), None)]
    if isinstance(given, str):
        legacy = section({"_data": fields.section("quant_type_kwargs").fields}, fields.source)
        base = _torchao_format(given, legacy)
        return Quantization("torchao", base, (*rules, kept()))
    chosen = fields.section("quant_type").section("default")
    kind = chosen.text("_type")
    if kind not in ("ModuleFqnToConfig", "FqnToConfig"):
        rules.append(_tables(fields, kept()))
        return Quantization("torchao", _torchao_format(kind, chosen), tuple(rules))
    base_, own = _by_module(chosen)
    return Quantization("torchao", base_, (*rules, *own, kept()))


def _tables(fields: Config, otherwise: Rule) -> Rule:
    if fields.flag("include_input_output_embeddings"):
        chosen = fields.section("quant_type").section("default")
        made = _torchao_format(chosen.text("_type"), chosen)
        return Rule(modules(["embed_tokens", "lm_head"]), made, tables=True)
    return otherwise


def _by_module(chosen: Config) -> tuple[WeightFormat | None, tuple[Rule, ...]]:
    """Configs by module name; `_default` for the rest, null for what stays as it is."""
    data = chosen.section("_data")
    key = "fqn_to_config" if data.has("fqn_to_config") else "module_fqn_to_config"
    base, rules = None, []
    for name, value in data.section(key).fields.items():
        made = None
        if isinstance(value, Mapping):
            entry = section(value, f"{data.source}: {name}")
            made = _torchao_format(entry.text("_type"), entry)
        if name == "_default":
            base = made
        else:
            pattern = prefixed([name]) if name.startswith("re:") else globs([name])
            rules.append(Rule(pattern, made, tables=True))
    return base, tuple(rules)


_TORCHAO: Final = {
    "int4weightonly": "int4",
    "int8weightonly": "int8",
    "int8dynamicactivationint8weight": "int8_dynamic",
    "float8weightonly": "fp8",
    "float8dynamicactivationfloat8weight": "fp8_dynamic",
}


def _torchao_format(kind: str, fields: Config) -> WeightFormat:
    key = kind.lower().removesuffix("config").replace("_", "")
    if key not in _TORCHAO:
        raise unknown(f"{fields.source}: torchao quant_type", kind, _TORCHAO)
    scheme = _TORCHAO[key]
    data = fields.section("_data")
    if scheme == "int4":
        group = data.size("group_size", 128)
        return storage(Weights("int", 4, "group", group, scale_bits=16, zero_bits=16), None)
    if scheme == "int8":
        return INT8_W8A16
    if scheme == "int8_dynamic":
        return INT8
    rows = scheme == "fp8" or "PerRow" in repr(data.fields.get("granularity"))
    strategy: Strategy = "row" if rows else "tensor"
    weights = Weights("float", 8, strategy, scale_bits=32 if rows else 0, tensor_bits=32)
    return storage(weights, None if scheme == "fp8" else Inputs("float", 8, dynamic=True))


# ---- AMD Quark --------------------------------------------------------------------------------

_QUARK_TYPES: Final[dict[str, tuple[str, int]]] = {
    "fp8_e4m3": ("float", 8),
    "fp4": ("float", 4),
    "fp6_e3m2": ("float", 6),
    "fp6_e2m3": ("float", 6),
    "int8": ("int", 8),
    "uint8": ("int", 8),
    "int4": ("int", 4),
    "uint4": ("int", 4),
}
_QUARK_SCHEMES: Final[dict[str, Strategy]] = {
    "per_tensor": "tensor",
    "per_channel": "row",
    "per_group": "group",
}


def read_quark(block: Block) -> Quantization:
    """A global scheme, schemes by glob, and excluded modules (vLLM, quantization/quark/quark.py)."""
    fields = block.fields
    rules = [Rule(prefixed(fields.names("exclude") or ()), None)]
    for pattern, entry in sections(fields, "layer_quant_config").items():
        if entry.raw("weight", None) is not None:
            rules.append(Rule(globs([pattern]), _quark_format(entry)))
    base = _quark_format(fields.section("global_quant_config"))
    return Quantization("quark", base, (*rules, kept()), _quark_cache(fields))


def _quark_format(fields: Config) -> WeightFormat | None:
    weights = _quark_spec(fields, "weight")
    if weights is None:
        return None
    kind, bits = _quark_type(weights)
    scheme = weights.text("qscheme", "per_tensor")
    if scheme not in _QUARK_SCHEMES:
        raise unknown(f"{weights.source}: qscheme", scheme, _QUARK_SCHEMES)
    group = weights.size("group_size", 32) if scheme == "per_group" else 0
    exponent = weights.has("scale_format") and weights.raw("scale_format") == "e8m0"
    two_level = kind == "float" and bits == 4 and group == 16
    made = Weights(
        "float" if kind == "float" else "int",
        bits,
        _QUARK_SCHEMES[scheme],
        group,
        scale_bits=8 if exponent or two_level else 0 if scheme == "per_tensor" else 32,
        zero_bits=0 if weights.flag("symmetric", True) or kind == "float" else bits,
        tensor_bits=64 if two_level else 32 if scheme == "per_tensor" else 0,
    )
    inputs = _quark_spec(fields, "input_tensors")
    if inputs is None:
        return storage(made, None)
    kind, bits = _quark_type(inputs)
    dynamic = inputs.flag("is_dynamic", False)
    return storage(made, Inputs("float" if kind == "float" else "int", bits, dynamic))


def _quark_spec(fields: Config, name: str) -> Config | None:
    """One tensor's scheme; of a two-level one (a list) the inner level, which sizes the elements."""
    value = fields.raw(name, None)
    if value is None:
        return None
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, Mapping)]
        if not entries:
            raise fields.error(name, "is a list that holds no object")
        inner = min(
            entries, key=lambda entry: _QUARK_TYPES.get(str(entry.get("dtype")), ("", 99))[1]
        )
        return section(inner, f"{fields.source}: {name}")
    return fields.section(name)


def _quark_type(fields: Config) -> tuple[str, int]:
    name = fields.text("dtype").lower()
    if name not in _QUARK_TYPES:
        raise unknown(f"{fields.source}: dtype", name, _QUARK_TYPES)
    return _QUARK_TYPES[name]


def _quark_cache(fields: Config) -> str | None:
    """The cache's type: the outputs of the layers in export.kv_cache_group."""
    groups = fields.section("export").names("kv_cache_group") or ()
    layers = sections(fields, "layer_quant_config")
    for pattern in groups:
        entry = layers.get(pattern)
        if entry is not None and entry.raw("output_tensors", None) is not None:
            kind, bits = _quark_type(entry.section("output_tensors"))
            return {("float", 8): "fp8", ("int", 8): "int8"}.get((kind, bits))
    return kv_dtype(fields)
