"""compressed-tensors (llm-compressor): groups of modules, each with a scheme of its own."""

from __future__ import annotations

from typing import Final

from roofcast.hardware.errors import InputError, unknown
from roofcast.simulator.config import Config
from roofcast.simulator.formats import WeightFormat
from roofcast.simulator.quantization.block import Block, kv_dtype, sections
from roofcast.simulator.quantization.patterns import modules, prefixed
from roofcast.simulator.quantization.scheme import Quantization, Rule, kept
from roofcast.simulator.quantization.storage import Inputs, Kind, Strategy, Weights, storage

_SCALE_BITS: Final = {
    "float8_e4m3fn": 8,
    "uint8": 8,
    "float8_e8m0fnu": 8,
    "bfloat16": 16,
    "float16": 16,
    "float32": 32,
}
_STRATEGIES: Final[dict[str, Strategy]] = {
    "tensor": "tensor",
    "channel": "row",
    "group": "group",
    "tensor_group": "group",
    "block": "block",
}
_UNQUANTISED: Final = ("dense",)
_SHAPE_BITS: Final = 128  # weight_shape, two int64, beside every packed integer matrix


def read(block: Block) -> Quantization:
    """`ignore` first, then modules named one by one, then whole classes (Linear)."""
    fields = block.fields
    _refuse_sparsity(fields)
    rules = [Rule(prefixed(fields.names("ignore") or ()), None), *group_rules(fields)]
    default, warnings = _class_default(fields)
    # llm-compressor quantises every Linear it is not told to ignore, the head among them.
    return Quantization(
        "compressed-tensors",
        default,
        (*rules, kept(heads=False)),
        kv_dtype(fields),
        warnings,
    )


def group_rules(fields: Config) -> tuple[Rule, ...]:
    """Rules for targets that name modules; classes of modules are left to the default."""
    rules = []
    for group in sections(fields, "config_groups").values():
        targets = group.names("targets") or ()
        named = [target for target in targets if not _is_class(target)]
        if named:
            rules.append(Rule(prefixed(named), _group_format(fields, group), tables=True))
        if any("Expert" in target for target in targets if _is_class(target)):
            rules.append(Rule(modules(["experts"]), _group_format(fields, group)))
        if "Embedding" in targets:
            rules.append(Rule(modules(["embed_tokens"]), _group_format(fields, group), tables=True))
    return tuple(rules)


def _class_default(fields: Config) -> tuple[WeightFormat | None, tuple[str, ...]]:
    """The format of the first group that targets Linear, and a warning where others do too."""
    found = [
        _group_format(fields, group)
        for group in sections(fields, "config_groups").values()
        if any("Linear" in target for target in group.names("targets") or () if _is_class(target))
    ]
    warnings = (
        ()
        if len(set(found)) < 2
        else (f"{fields.source}: several groups target Linear; the first was taken for all",)
    )
    return (found[0] if found else None), warnings


def _is_class(target: str) -> bool:
    return not target.startswith("re:") and "." not in target and target[:1].isupper()


def _group_format(fields: Config, group: Config) -> WeightFormat | None:
    layout = group.text("format", fields.text("format", ""))
    given = group.raw("weights", None)
    if given is None or layout in _UNQUANTISED:
        return None
    packed = layout in ("pack-quantized", "marlin-24", "")
    return storage(weights(group.section("weights"), packed=packed), inputs(group))


def weights(fields: Config, *, packed: bool = False) -> Weights:
    """A group's `weights` object. `packed` integers carry their shape along."""
    kind = _kind(fields)
    bits = fields.size("num_bits", 8)
    group = _group_size(fields)
    strategy = _strategy(fields, group)
    symmetric = fields.flag("symmetric", True)
    two_level = kind == "float" and bits == 4 and group == 16
    reordered = fields.raw("actorder", None) in ("group", True)
    return Weights(
        kind,
        bits,
        strategy,
        group,
        _block_size(fields) if strategy == "block" else (0, 0),
        scale_bits=_scale_bits(fields, strategy, two_level=two_level),
        zero_bits=0 if symmetric or kind == "float" else (bits if packed else 8),
        column_bits=32 if reordered and strategy == "group" else 0,
        tensor_bits=64 if two_level else _SHAPE_BITS if packed and kind == "int" else 0,
    )


def inputs(group: Config) -> Inputs | None:
    """A group's `input_activations`; None where null or absent."""
    if group.raw("input_activations", None) is None:
        return None
    fields = group.section("input_activations")
    dynamic = fields.raw("dynamic", False)
    return Inputs(_kind(fields), fields.size("num_bits", 8), dynamic in (True, "local"))


def _kind(fields: Config) -> Kind:
    given = fields.text("type", "int").lower()
    if given not in ("int", "float"):
        raise unknown(f"{fields.source}: type", given, ("int", "float"))
    return "int" if given == "int" else "float"


def _group_size(fields: Config) -> int:
    given = fields.raw("group_size", None)
    return 0 if given in (None, -1) else fields.size("group_size")


def _strategy(fields: Config, group: int) -> Strategy:
    given = fields.raw("strategy", None)
    if given is None:
        return "group" if group else "tensor"
    name = fields.text("strategy").lower()
    if name not in _STRATEGIES:
        raise unknown(f"{fields.source}: strategy", name, _STRATEGIES)
    if _STRATEGIES[name] == "group" and not group:
        return "row"
    return _STRATEGIES[name]


def _block_size(fields: Config) -> tuple[int, int]:
    size = fields.wholes("block_structure", 2) if fields.has("block_structure") else None
    if size is None or min(size) < 1:
        raise fields.error(
            "block_structure", "must be two positive numbers where strategy is block"
        )
    return size[0], size[1]


def _scale_bits(fields: Config, strategy: Strategy, *, two_level: bool) -> int:
    """`scale_dtype` where it is given, else what each layout stores: the model's 16-bit dtype."""
    given = fields.raw("scale_dtype", None)
    if given is not None:
        name = fields.text("scale_dtype").removeprefix("torch.")
        if name not in _SCALE_BITS:
            raise unknown(f"{fields.source}: scale_dtype", name, _SCALE_BITS)
        return _SCALE_BITS[name]
    if two_level or (strategy == "group" and _kind(fields) == "float"):
        return 8
    return 16


def _refuse_sparsity(fields: Config) -> None:
    sparsity = fields.section("sparsity_config")
    layout = sparsity.text("format", "dense") if sparsity.has("format") else "dense"
    if layout != "dense":
        raise InputError(
            f"{fields.source}: sparsity_config.format {layout!r} stores sparse weights, which "
            "Roofcast does not model; only dense checkpoints are supported"
        )
