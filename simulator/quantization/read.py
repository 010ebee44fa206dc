"""From a checkpoint's config to its `Quantization`: find the block, name the method, read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from roofcast.hardware.errors import InputError, unknown
from roofcast.simulator.quantization import compressed_tensors, fp8, integer, modelopt, others
from roofcast.simulator.quantization.block import Block, find, kv_dtype, section
from roofcast.simulator.quantization.scheme import UNQUANTISED, Quantization

_Reader = Callable[[Block], Quantization]

# To add a method: a reader of its block, and its names here.
READERS: Final[dict[str, _Reader]] = {
    "fp8": fp8.read,
    "mxfp8": fp8.read,
    "fbgemm_fp8": fp8.read_fbgemm,
    "modelopt": modelopt.read,
    "compressed-tensors": compressed_tensors.read,
    "mxfp4": others.read_mxfp4,
    "awq": integer.read_awq,
    "gptq": integer.read_gptq,
    "auto-round": integer.read_auto_round,
    "bitsandbytes": integer.read_bitsandbytes,
    "hqq": integer.read_hqq,
    "eetq": integer.read_eetq,
    "bitnet": integer.read_bitnet,
    "torchao": others.read_torchao,
    "quark": others.read_quark,
}
_ALIASES: Final = {
    "deepseek_fp8": "fp8",
    "modelopt_fp4": "modelopt",
    "modelopt_fp8": "modelopt",
    "modelopt_mixed": "modelopt",
    "modelopt_mxfp8": "modelopt",
    "nvfp4": "modelopt",
    "compressed_tensors": "compressed-tensors",
    "sparseml": "compressed-tensors",
    "gpt_oss_mxfp4": "mxfp4",
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "gptqmodel": "gptq",
    "marlin": "gptq",
    "auto_round": "auto-round",
    "autoround": "auto-round",
    "intel/auto-round": "auto-round",
    "bitsandbytes_4bit": "bitsandbytes",
    "bitsandbytes_8bit": "bitsandbytes",
}


def quantization(
    config: Mapping[str, object],
    side_file: Mapping[str, object] | None = None,
    *,
    source: str = "config.json",
) -> Quantization:
    """How the checkpoint of a config.json stores its modules; `side_file` is hf_quant_config.json.

    The block in config.json counts where there is one; many NVIDIA checkpoints say it only in the
    side file. Raises InputError for a block that makes no sense and UnknownNameError, naming those
    supported, for a method that none of `READERS` reads.
    """
    block = find(config, source)
    side = Block(section(side_file, "hf_quant_config.json"), config) if side_file else None
    if block is None:
        return _warned(modelopt.read(side)) if side else UNQUANTISED
    read = _warned(READERS[_method(block)](block))
    if read.kv_dtype is None and side is not None:
        return replace(read, kv_dtype=_side_cache(side))
    return read


def _method(block: Block) -> str:
    fields = block.fields
    given = fields.raw("quant_method", None)
    if given is None:
        return _guess(block)
    name = fields.text("quant_method").lower()
    known = _ALIASES.get(name, name)
    if known not in READERS:
        raise unknown(f"{fields.source}: quant_method", name, READERS, _supported())
    return known


def _supported() -> str:
    return f"supported: {', '.join(READERS)}"


def _guess(block: Block) -> str:
    """Blocks without a method: each of these keys belongs to one method only."""
    signs = {
        "modelopt": ("quant_algo", "quantization"),
        "bitsandbytes": ("load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit"),
        "compressed-tensors": ("config_groups",),
        "awq": ("w_bit", "q_group_size"),
    }
    for method, keys in signs.items():
        if any(block.fields.has(key) for key in keys):
            return method
    raise InputError(f"{block.fields.source}: quant_method is missing; {_supported()}")


def _side_cache(side: Block) -> str | None:
    fields = side.fields
    return kv_dtype(fields.section("quantization") if fields.has("quantization") else fields)


def _warned(read: Quantization) -> Quantization:
    """Say where a config names some experts of a layer apart: a stack has one format here."""
    uneven = [name for rule in read.rules for name in rule.patterns.uneven]
    if not uneven:
        return read
    note = f"{len(uneven)} expert stacks are named in part only ({uneven[0]}); all experts of a "
    note += "layer were taken to be stored alike"
    return replace(read, warnings=(*read.warnings, note))
