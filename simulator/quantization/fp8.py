"""quant_method fp8 and its like: e4m3 weights with scales per tensor, per block or per 32 (MXFP8)."""

from __future__ import annotations

from typing import Final

from roofcast.simulator.formats import WeightFormat
from roofcast.simulator.quantization import modelopt
from roofcast.simulator.quantization.block import Block, kv_dtype
from roofcast.simulator.quantization.patterns import modules
from roofcast.simulator.quantization.scheme import Quantization, Rule, kept
from roofcast.simulator.quantization.storage import Inputs, Weights, storage

_EXPERTS: Final = storage(
    Weights("float", 4, "group", 32, scale_bits=8), Inputs("float", 8, dynamic=True)
)
"""e2m1 experts with an e8m0 scale per 32, multiplied in fp8 (DeepSeek-V4)."""


def read(block: Block) -> Quantization:
    """DeepSeek's fine-grained fp8, AutoFP8 (no block size: per tensor) and MXFP8."""
    fields = block.fields
    base = _matrix_format(block)
    excluded = block.listed("modules_to_not_convert", "ignored_layers") or ()
    rules = [Rule(modules(excluded), None)]
    converted = block.listed("modules_to_convert")
    if converted:
        rules.append(Rule(modules(converted), base, tables=True))
    rules += modelopt.layer_rules(fields)
    if _expert_dtype(block) == "fp4":
        rules.append(Rule(modules(["experts"]), _EXPERTS))
    return Quantization("fp8", base, (*rules, kept()), kv_dtype(fields))


def read_fbgemm(block: Block) -> Quantization:
    """fbgemm_fp8: an f32 scale per output row, activations scaled per token (Llama-3.1-405B-FP8)."""
    base = storage(Weights("float", 8, "row", scale_bits=32), Inputs("float", 8, dynamic=True))
    excluded = block.listed("modules_to_not_convert") or ()
    return Quantization("fbgemm_fp8", base, (Rule(modules(excluded), None), kept()))


def _matrix_format(block: Block) -> WeightFormat:
    """Absent or null block size means one scale a tensor; [1, 32] with e8m0 scales is MXFP8."""
    fields = block.fields
    static = fields.text("activation_scheme", "dynamic").lower() == "static"
    inputs = Inputs("float", 8, dynamic=not static)
    size = fields.wholes("weight_block_size", None)
    if size is None:
        tensor_bits = 64 if static else 32
        return storage(Weights("float", 8, scale_bits=0, tensor_bits=tensor_bits), inputs)
    if len(size) != 2 or min(size) < 1:
        raise fields.error("weight_block_size", f"must be two positive numbers, not {list(size)}")
    if size[0] == 1:
        return storage(Weights("float", 8, "group", size[1], scale_bits=8), inputs)
    return storage(
        Weights("float", 8, "block", block=(size[0], size[1]), scale_bits=_scale_bits(block)),
        inputs,
    )


def _scale_bits(block: Block) -> int:
    """DeepSeek-V4 stores ue8m0 scales in a byte; V3.1 and V3.2 say ue8m0 and store them as f32."""
    one_byte = block.fields.text("scale_fmt", "float") == "ue8m0"
    return 8 if one_byte and block.model.get("model_type") == "deepseek_v4" else 32


def _expert_dtype(block: Block) -> str:
    for source in (block.fields.fields, block.model):
        if "expert_dtype" in source:
            given = source["expert_dtype"]
            if given not in ("fp8", "fp4"):
                raise block.fields.error("expert_dtype", f"must be fp8 or fp4, not {given!r}")
            return str(given)
    return "fp8"
