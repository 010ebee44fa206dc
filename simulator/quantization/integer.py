"""Weight-only integers in groups: AWQ, GPTQ, AutoRound, HQQ, bitsandbytes, EETQ, BitNet."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.hardware.errors import InputError, unknown
from roofcast.simulator.config import Config
from roofcast.simulator.formats import INT8, NF4, NF4_DOUBLE, WeightFormat
from roofcast.simulator.quantization.block import Block, section, sections
from roofcast.simulator.quantization.patterns import expressions, globs, modules, pieces
from roofcast.simulator.quantization.scheme import Quantization, Rule, kept
from roofcast.simulator.quantization.storage import Inputs, Weights, storage

_BITS: Final = (1, 2, 3, 4, 5, 6, 8)
_COMPUTE: Final = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
}


def read_awq(block: Block) -> Quantization:
    """AutoAWQ, also under its first key names (w_bit, q_group_size)."""
    bits = _bits(block, "bits", "w_bit", default=4)
    group = _group(block.fields, "group_size", "q_group_size", default=128)
    zero = block.fields.flag("zero_point", True)
    base = storage(_grouped(bits, group, zero=zero), None)
    excluded = block.listed("modules_to_not_convert") or ()
    return Quantization("awq", base, (Rule(pieces(excluded), None), kept()))


def read_gptq(block: Block) -> Quantization:
    """AutoGPTQ and GPTQModel: zero points are packed beside the scales even when symmetric."""
    fields = block.fields
    layout = fields.text("checkpoint_format", fields.text("format", "gptq")).lower()
    bare = layout == "marlin"  # neither zero points nor a group index
    base = _gptq_format(_bits(block, "bits"), _group(fields, "group_size", default=128), bare)
    rules = list(_dynamic_rules(fields, base, bare))
    chosen = _flat(fields, "modules_in_block_to_quantize")
    keep = kept(heads=not fields.flag("lm_head"))
    if chosen:
        return Quantization("gptq", None, (*rules, keep, Rule(modules(chosen), base)))
    excluded = block.listed("modules_to_not_convert") or ()
    return Quantization("gptq", base, (*rules, Rule(modules(excluded), None), keep))


def read_auto_round(block: Block) -> Quantization:
    """Intel AutoRound in a GPTQ or AWQ packing, with exceptions listed in `extra_config`."""
    fields = block.fields
    kind = fields.text("data_type", "int").lower()
    if kind != "int":
        raise unknown(f"{fields.source}: data_type", kind, ("int",))
    packing = fields.text("packing_format", "auto_round:auto_gptq").lower()
    awq = "awq" in packing
    bits, group = _bits(block, "bits", default=4), _group(fields, "group_size", default=128)

    def made(bits: int, group: int, symmetric: bool) -> WeightFormat | None:
        if bits >= 16:
            return None
        if awq:
            return storage(_grouped(bits, group, zero=not symmetric), None)
        return _gptq_format(bits, group, bare=False)

    symmetric = fields.flag("sym", True)
    rules = []
    for name, entry in sections(fields, "extra_config").items():
        own = made(
            entry.size("bits", bits),
            _group(entry, "group_size", default=group),
            entry.flag("sym", symmetric),
        )
        rules.append(Rule(globs([name]), own))
    excluded = block.listed("modules_to_not_convert") or ()
    rules += [Rule(modules(excluded), None), kept()]
    return Quantization("auto-round", made(bits, group, symmetric), tuple(rules))


def read_bitsandbytes(block: Block) -> Quantization:
    """LLM.int8() and 4-bit NF4/FP4, with or without nested scales."""
    fields = block.fields
    four = fields.flag("load_in_4bit") or fields.flag("_load_in_4bit")
    eight = fields.flag("load_in_8bit") or fields.flag("_load_in_8bit")
    if four == eight:
        raise InputError(
            f"{fields.source}: bitsandbytes needs exactly one of load_in_4bit and load_in_8bit"
        )
    base = _four_bit(fields) if four else INT8
    skipped = block.listed("llm_int8_skip_modules", "modules_to_not_convert") or ()
    return Quantization("bitsandbytes", base, (Rule(modules(skipped), None), kept()))


def read_hqq(block: Block) -> Quantization:
    """HQQ: a 16-bit scale and zero point a group; the layers may have their own settings by tag."""
    fields = block.fields.section("quant_config")
    if not fields.fields:
        fields = block.fields
    skipped = block.listed("skip_modules")
    rules = [Rule(modules(("lm_head",) if skipped is None else skipped), None)]
    settings = fields.fields.get("weight_quant_params", fields.fields)
    if isinstance(settings, dict) and any(key in settings for key in ("nbits", "group_size")):
        base = _hqq_format(section(settings, fields.source))
        return Quantization("hqq", base, (*rules, kept()))
    for tag, entry in sections(block.fields, "quant_config").items():
        own = entry.section("weight_quant_params") if entry.has("weight_quant_params") else entry
        rules.append(Rule(modules([tag]), _hqq_format(own)))
    return Quantization("hqq", None, (*rules, kept()))


def read_eetq(block: Block) -> Quantization:
    """EETQ: int8 weights with a 16-bit scale per output row, activations untouched."""
    excluded = block.listed("modules_to_not_convert") or ()
    base = storage(Weights("int", 8, "row"), None)
    return Quantization("eetq", base, (Rule(modules(excluded), None), kept()))


def read_bitnet(block: Block) -> Quantization:
    """BitNet b1.58: ternary weights, four to a byte, one 16-bit scale; activations in int8.

    Source: transformers 5.24.0, integrations/bitnet.py. In online mode the file keeps bf16 weights.
    """
    excluded = block.listed("modules_to_not_convert") or ()
    rules = (Rule(modules(excluded), None), kept())
    if block.fields.text("quantization_mode", "offline") == "online":
        return Quantization("bitnet", None, rules)
    base = storage(Weights("int", 2, scale_bits=0, tensor_bits=16), Inputs("int", 8, dynamic=True))
    return Quantization("bitnet", replace(base, name="ternary"), rules)


def _grouped(bits: int, group: int, *, zero: bool, columns: int = 0) -> Weights:
    return Weights(
        "int",
        bits,
        "group" if group else "row",
        group,
        scale_bits=16,
        zero_bits=bits if zero else 0,
        column_bits=columns,
    )


def _gptq_format(bits: int, group: int, bare: bool) -> WeightFormat:
    return storage(_grouped(bits, group, zero=not bare, columns=0 if bare else 32), None)


def _dynamic_rules(fields: Config, base: WeightFormat, bare: bool) -> tuple[Rule, ...]:
    """GPTQModel's `dynamic`: "-:regex" leaves modules out, "+:regex" or a bare one overrides."""
    rules = []
    for key, entry in sections(fields, "dynamic").items():
        sign, _, pattern = key.partition(":") if key[:2] in ("+:", "-:") else ("+", "", key)
        own: WeightFormat | None = None
        if sign == "+":
            bits = entry.size("bits", int(base.bits))
            own = _gptq_format(bits, _group(entry, "group_size", default=base.block_columns), bare)
        rules.append(Rule(expressions([pattern]), own))
    return tuple(rules)


def _four_bit(fields: Config) -> WeightFormat:
    kind = fields.text("bnb_4bit_quant_type", "fp4").lower()
    if kind not in ("nf4", "fp4"):
        raise unknown(f"{fields.source}: bnb_4bit_quant_type", kind, ("nf4", "fp4"))
    base = NF4_DOUBLE if fields.flag("bnb_4bit_use_double_quant") else NF4
    dtype = fields.text("bnb_4bit_compute_dtype", "float32").removeprefix("torch.")
    if dtype not in _COMPUTE:
        raise unknown(f"{fields.source}: bnb_4bit_compute_dtype", dtype, _COMPUTE)
    return replace(base, compute=_COMPUTE[dtype])


def _hqq_format(fields: Config) -> WeightFormat:
    """3-bit weights are packed ten to 32 bits, the others densely (hqq 0.2, core/bitpack.py)."""
    bits = fields.size("nbits", 4)
    if bits not in (1, 2, 3, 4, 8):
        raise fields.error("nbits", f"must be 1, 2, 3, 4 or 8, not {bits}")
    group = _group(fields, "group_size", default=64)
    made = storage(replace(_grouped(bits, group, zero=False), zero_bits=16), None)
    return replace(made, bits=3.2) if bits == 3 else made


def _bits(block: Block, *names: str, default: int | None = None) -> int:
    if default is None and not any(block.fields.has(name) for name in names):
        raise block.fields.error(names[0], "is missing")
    bits = block.size(*names, default=default or 1)
    if bits not in _BITS:
        raise block.fields.error(names[0], f"must be one of {_BITS}, not {bits}")
    return bits


def _group(fields: Config, *names: str, default: int) -> int:
    """Elements a scale serves; 0 where one serves a whole row (-1, null or 0 in the file)."""
    for name in names:
        if fields.has(name):
            given = fields.raw(name, None)
            return 0 if given in (None, -1, 0) else fields.size(name)
    return default


def _flat(fields: Config, name: str) -> tuple[str, ...]:
    """A list of names, or a list of lists of names."""
    found: list[str] = []
    for entry in fields.items(name) or ():
        for item in entry if isinstance(entry, list) else [entry]:
            if not isinstance(item, str):
                raise fields.error(name, f"must hold module names, not {item!r}")
            found.append(item)
    return tuple(found)
