"""NVIDIA ModelOpt: `quantization_config` in config.json, or a separate hf_quant_config.json."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.hardware.errors import unknown
from roofcast.simulator.config import Config
from roofcast.simulator.formats import MXFP8, NVFP4, NVFP4_W4A16, WeightFormat
from roofcast.simulator.quantization import compressed_tensors
from roofcast.simulator.quantization.block import Block, kv_dtype, sections
from roofcast.simulator.quantization.patterns import globs
from roofcast.simulator.quantization.scheme import Quantization, Rule, kept
from roofcast.simulator.quantization.storage import Inputs, Weights, storage

_FP8_STATIC: Final = Inputs("float", 8, dynamic=False)
_FP8_DYNAMIC: Final = Inputs("float", 8, dynamic=True)
_AWQ: Final = Weights("int", 4, "group", 128, scale_bits=16, column_bits=16)

# Algorithms by name, as exported by nvidia-modelopt (modelopt/torch/export/model_config.py) and read
# by vLLM (quantization/modelopt.py). FP8 keeps a weight and an input scale a tensor, AWQ a smoothing
# scale per input column.
ALGORITHMS: Final[dict[str, WeightFormat]] = {
    "FP8": storage(Weights("float", 8, scale_bits=0, tensor_bits=64), _FP8_STATIC),
    "FP8_PER_CHANNEL_PER_TOKEN": storage(Weights("float", 8, "row", scale_bits=32), _FP8_DYNAMIC),
    "FP8_PB_WO": storage(
        Weights("float", 8, "block", block=(128, 128), scale_bits=32), _FP8_DYNAMIC
    ),
    "MXFP8": MXFP8,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": replace(NVFP4, column_bits=16),
    "W4A16_NVFP4": NVFP4_W4A16,
    "W4A16_AWQ": storage(_AWQ, None),
    "W4A8_AWQ": storage(_AWQ, _FP8_DYNAMIC),
    "W8A16": storage(Weights("int", 8, "row", scale_bits=16), None),
    "W8A8_SQ_PER_CHANNEL": storage(
        Weights("int", 8, "row", scale_bits=32, column_bits=16), Inputs("int", 8, dynamic=True)
    ),
}
MIXED: Final = "MIXED_PRECISION"
_NO_LIST: Final = (
    "no excluded modules are listed, though ModelOpt always lists some; only lm_head, embeddings, "
    "routers and norms were taken to be unquantised"
)


def read(block: Block) -> Quantization:
    """Both layouts; `MIXED_PRECISION` lists its layers, everything else excludes some."""
    fields = block.fields
    if isinstance(fields.fields.get("quantization"), dict):
        fields = fields.section("quantization")
    algorithm = fields.text("quant_algo").upper()
    excluded = fields.names("exclude_modules") or fields.names("ignore") or ()
    rules = [Rule(globs(excluded), None)]
    if algorithm == MIXED:
        listed = layer_rules(fields)
        if not listed and fields.has("config_groups"):
            listed = compressed_tensors.group_rules(fields)
        if not listed:
            raise fields.error("quantized_layers", f"is missing, but {MIXED} needs it")
        return Quantization("modelopt", None, (*rules, *listed), kv_dtype(fields))
    base = _algorithm(fields, algorithm)
    warnings = () if excluded else (f"{fields.source}: {_NO_LIST}",)
    return Quantization("modelopt", base, (*rules, kept()), kv_dtype(fields), warnings)


def layer_rules(fields: Config) -> tuple[Rule, ...]:
    """`quantized_layers`: each module's algorithm, gathered by format."""
    by_format: dict[WeightFormat, list[str]] = {}
    for name, entry in sections(fields, "quantized_layers").items():
        algorithm = _algorithm(entry, entry.text("quant_algo").upper())
        by_format.setdefault(algorithm, []).append(name)
    return tuple(Rule(globs(names), made) for made, names in by_format.items())


def _algorithm(fields: Config, name: str) -> WeightFormat:
    if name not in ALGORITHMS:
        raise unknown(f"{fields.source}: quant_algo", name, [*ALGORITHMS, MIXED])
    found = ALGORITHMS[name]
    group = fields.size("group_size", found.block_columns or 1)
    if found.block_rows == 1 and found.block_columns and group != found.block_columns:
        return replace(found, block_columns=group)
    return found
