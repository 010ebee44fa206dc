"""How numbers are stored: element types of weights and caches, with their scales and zero points.

Storage and arithmetic are two things. A `WeightFormat` says what a matrix takes in memory and, in
`compute`, what its product runs in where the device can: W4A16 weights multiply in bf16, an fp8
W8A8 checkpoint in fp8. A device without that unit computes in a wider dtype; its profile says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from roofcast.hardware.errors import unknown

Activations = Literal["none", "static", "dynamic"]


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Storage of one weight matrix.

    `bits` an element, plus `scale_bits` (scale and zero point together) for every block of
    `block_rows` x `block_columns` elements; 0 rows or columns means the whole extent. `column_bits`
    are kept for every input column (GPTQ's g_idx, a smoothing scale), `tensor_bits` once (NVFP4's
    global scale, a static input scale). `compute` is the dtype the product runs in. `activations`
    says whether its inputs are quantised too: dynamic costs a pass over them, static only a scale.
    """

    name: str
    bits: float
    compute: str
    scale_bits: float = 0.0
    block_rows: int = 1
    block_columns: int = 0
    column_bits: float = 0.0
    tensor_bits: float = 0.0
    activations: Activations = "none"

    def bytes(self, rows: int, columns: int) -> float:
        """Bytes of a rows x columns matrix; a block that sticks out at an edge has a scale too.

        >>> WeightFormat("mxfp4", 4, "bf16", scale_bits=8, block_columns=32).bytes(64, 128)
        4352.0
        """
        blocks = 0
        if self.scale_bits:
            blocks = math.ceil(rows / (self.block_rows or rows)) * math.ceil(
                columns / (self.block_columns or columns)
            )
        extras = blocks * self.scale_bits + columns * self.column_bits + self.tensor_bits
        return (rows * columns * self.bits + extras) / 8

    @property
    def bits_per_element(self) -> float:
        """Bits an element of a matrix so large that only its blocks count.

        >>> find_format("nvfp4").bits_per_element, find_format("q4_k").bits_per_element
        (4.5, 4.5)
        """
        block = self.block_rows * self.block_columns
        return self.bits + (self.scale_bits / block if block else 0.0)

    @property
    def plain(self) -> bool:
        """Whether this is an ordinary float type, with no scales: what unquantised tensors use."""
        return self.name in _PLAIN


FP32 = WeightFormat("fp32", 32, "fp32")
TF32 = WeightFormat("tf32", 32, "tf32")
BF16 = WeightFormat("bf16", 16, "bf16")
FP16 = WeightFormat("fp16", 16, "fp16")
_PLAIN = ("fp32", "tf32", "bf16", "fp16")

FP8 = WeightFormat("fp8", 8, "fp8", tensor_bits=32, activations="dynamic")
"""e4m3 with one f32 scale a tensor; activations are scaled as they come."""

FP8_BLOCK = WeightFormat(
    "fp8_block", 8, "fp8", scale_bits=32, block_rows=128, block_columns=128, activations="dynamic"
)
"""e4m3 with an f32 scale per 128 x 128 block (DeepSeek-V3, arXiv 2412.19437, section 3.3)."""

MXFP8 = WeightFormat("mxfp8", 8, "fp8", scale_bits=8, block_columns=32, activations="dynamic")
"""e4m3 with an e8m0 scale per 32 elements (OCP Microscaling Formats 1.0)."""

MXFP4 = WeightFormat("mxfp4", 4, "bf16", scale_bits=8, block_columns=32)
"""e2m1 with an e8m0 scale per 32 elements (OCP Microscaling Formats 1.0), weights only: gpt-oss."""

MXFP4_W4A8 = WeightFormat(
    "mxfp4_w4a8", 4, "fp8", scale_bits=8, block_columns=32, activations="dynamic"
)
"""MXFP4 weights under mxfp8 activations: gpt-oss on Blackwell under TensorRT-LLM, and under vLLM with
VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 (tensorrt_llm/_torch/model_config.py, vllm/envs.py)."""

NVFP4 = WeightFormat(
    "nvfp4", 4, "fp4", scale_bits=8, block_columns=16, tensor_bits=64, activations="dynamic"
)
"""e2m1, an e4m3 scale per 16 elements, an f32 scale a tensor and one for its input (ModelOpt)."""

NVFP4_W4A16 = WeightFormat("nvfp4_w4a16", 4, "bf16", scale_bits=8, block_columns=16, tensor_bits=32)
"""NVFP4 weights under bf16 activations."""

INT8 = WeightFormat("int8", 8, "int8", scale_bits=32, activations="dynamic")
"""W8A8: an f32 scale per output row, activations scaled per token."""

INT8_W8A16 = WeightFormat("int8_w8a16", 8, "bf16", scale_bits=16)
"""Weights only: a 16-bit scale per output row."""

INT4 = WeightFormat("int4", 4, "bf16", scale_bits=16, block_columns=128)
"""W4A16, symmetric: a 16-bit scale per 128 elements."""

AWQ = WeightFormat("awq", 4, "bf16", scale_bits=16 + 4, block_columns=128)
"""AutoAWQ's gemm layout: f16 scale and 4-bit zero point per 128 elements."""

GPTQ = WeightFormat("gptq", 4, "bf16", scale_bits=16 + 4, block_columns=128, column_bits=32)
"""AutoGPTQ: f16 scale and packed zero point per 128 elements, an int32 group index per column."""

NF4 = WeightFormat("nf4", 4, "bf16", scale_bits=32, block_columns=64)
"""bitsandbytes 4 bit: an f32 absmax per 64 elements (QLoRA, arXiv 2305.14314)."""

NF4_DOUBLE = WeightFormat("nf4_double", 4, "bf16", scale_bits=8 + 32 / 256, block_columns=64)
"""The same with absmax in 8 bit and an f32 scale per 256 of them: 4.127 bits an element."""

# Elements and bytes of one block: ggml's type traits, as in gguf 0.19.0 (MIT), GGML_QUANT_SIZES.
# Scales and minima are inside the block.
GGML_BLOCKS = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q8_1": (32, 40),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "q8_k": (256, 292),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
}


def ggml_format(name: str) -> WeightFormat:
    """The format of a GGUF tensor type, scales spread over the elements of a block.

    llama.cpp multiplies these in int8: activations are quantised to q8 blocks on the way in.

    >>> ggml_format("q6_k").bytes(1, 256)
    210.0
    """
    elements, size = GGML_BLOCKS[name]
    bits = 8 * size / elements
    return WeightFormat(name, bits, "int8", activations="dynamic")


FORMATS: dict[str, WeightFormat] = {
    entry.name: entry
    for entry in (
        FP32, TF32, BF16, FP16, FP8, FP8_BLOCK, MXFP8, MXFP4, MXFP4_W4A8, NVFP4, NVFP4_W4A16,
        INT8, INT8_W8A16, INT4, AWQ, GPTQ, NF4, NF4_DOUBLE,
        *map(ggml_format, GGML_BLOCKS),
    )
}  # fmt: skip

_ALIASES = {
    "float32": "fp32", "float": "fp32", "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_e4m3fn": "fp8", "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8", "e4m3": "fp8", "w8a8_fp8": "fp8",
    "w4a16": "int4", "int4_wo": "int4",
    "w8a8": "int8", "w8a16": "int8_w8a16", "int8_wo": "int8_w8a16",
    "fp4": "nvfp4", "w4a4": "nvfp4",
}  # fmt: skip


def find_format(name: str) -> WeightFormat:
    """The storage format of that name; raises UnknownNameError with the nearest match.

    >>> find_format("torch.bfloat16").name, find_format("Q4_K").bytes(1, 256)
    ('bf16', 144.0)
    """
    key = _spelling(name)
    if key not in FORMATS:
        raise unknown("weight dtype", name, [*FORMATS, *_ALIASES], "`--weight-dtype bf16` is plain")
    return FORMATS[key]


# Bits a cached element takes. The fp8 and int8 caches of vLLM, SGLang and TensorRT-LLM scale per
# tensor or per head, which is no longer visible at this precision; the others carry block scales.
_ELEMENT_BITS = {
    "fp32": 32.0,
    "tf32": 32.0,
    "bf16": 16.0,
    "fp16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "int4": 4.0,
    # vLLM's sparse-MLA cell: 512 fp8 + 4 f32 scales + 64 bf16 = 656 bytes for 576 elements
    # (vllm/v1/attention/backends/mla/flashmla_sparse.py).
    "fp8_ds_mla": 656 * 8 / 576,
}
_BLOCK_ELEMENTS = ("nvfp4", "mxfp8", "mxfp4", *GGML_BLOCKS)


def element_bytes(dtype: str) -> float:
    """Bytes of one element of a cache or an activation; UnknownNameError with the nearest match.

    >>> [element_bytes(name) for name in ("bf16", "fp8", "int4", "nvfp4", "q8_0")]
    [2.0, 1.0, 0.5, 0.5625, 1.0625]
    """
    key = _spelling(dtype)
    if key in _ELEMENT_BITS:
        return _ELEMENT_BITS[key] / 8
    if key in _BLOCK_ELEMENTS:
        return FORMATS[key].bits_per_element / 8
    raise unknown("element type", dtype, [*_ELEMENT_BITS, *_BLOCK_ELEMENTS])


def element_name(dtype: str) -> str:
    """The one spelling of an element type that Roofcast uses; UnknownNameError if there is none.

    >>> element_name("torch.float8_e4m3fn")
    'fp8'
    """
    element_bytes(dtype)
    return _spelling(dtype)


def _spelling(name: str) -> str:
    key = name.strip().lower().removeprefix("torch.").replace("-", "_")
    return _ALIASES.get(key, key)
