"""Storage formats against numbers worked by hand and against ggml's own table."""

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.hardware.accelerator import DTYPES
from roofcast.hardware.errors import UnknownNameError
from roofcast.simulator.formats import (
    FORMATS,
    GGML_BLOCKS,
    element_bytes,
    element_name,
    find_format,
)


@pytest.mark.parametrize(
    ("name", "rows", "columns", "expected"),
    [
        ("fp32", 3, 5, 60),
        ("bf16", 3, 5, 30),
        ("fp8", 256, 256, 256 * 256 + 4),
        # 4096 x 7168 in 32 x 56 blocks of 128 x 128, an f32 scale each.
        ("fp8_block", 4096, 7168, 4096 * 7168 + 32 * 56 * 4),
        # 576 rows are 4.5 blocks: five scales a block column.
        ("fp8_block", 576, 7168, 576 * 7168 + 5 * 56 * 4),
        ("mxfp8", 64, 64, 64 * 64 + 64 * 2),
        ("mxfp4", 5760, 2880, 5760 * (1440 + 90)),
        ("nvfp4", 128, 128, 128 * 64 + 128 * 8 + 8),
        ("nvfp4_w4a16", 128, 128, 128 * 64 + 128 * 8 + 4),
        ("int8", 100, 64, 6400 + 400),
        ("int8_w8a16", 100, 64, 6400 + 200),
        ("int4", 100, 256, 100 * (128 + 2 * 2)),
        ("awq", 100, 256, 100 * (128 + 2 * 2.5)),
        ("gptq", 100, 256, 100 * (128 + 2 * 2.5) + 4 * 256),
        ("nf4", 100, 256, 100 * (128 + 4 * 4)),
    ],
)
def test_bytes_of_a_matrix_by_hand(name, rows, columns, expected):
    assert find_format(name).bytes(rows, columns) == expected


def test_double_quantised_nf4_is_the_papers_4_127_bits():
    # QLoRA, arXiv 2305.14314, section 3: 0.5 bits of scale become 8/64 + 32/(64 x 256) = 0.127.
    assert find_format("nf4_double").bits_per_element == pytest.approx(4.127, abs=5e-4)


@pytest.mark.parametrize("name", sorted(GGML_BLOCKS))
def test_ggml_blocks_are_those_of_the_gguf_package(name):
    kind = gguf.GGMLQuantizationType[name.upper()]
    assert gguf.GGML_QUANT_SIZES[kind] == GGML_BLOCKS[name]
    elements, size = GGML_BLOCKS[name]
    assert find_format(name).bytes(7, 2 * elements) == 14 * size


def test_microscaling_formats_agree_with_ggml():
    assert (
        find_format("mxfp4").bytes(1, 32)
        == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.MXFP4][1]
    )


@pytest.mark.parametrize("entry", FORMATS.values(), ids=FORMATS)
def test_every_format_computes_in_a_dtype_devices_have(entry):
    assert entry.compute in DTYPES


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 300), st.integers(1, 300))
def test_bytes_grow_with_the_matrix_and_never_beat_the_elements(name, rows, columns):
    entry = find_format(name)
    size = entry.bytes(rows, columns)
    assert size >= rows * columns * entry.bits / 8
    assert entry.bytes(rows + 1, columns) >= size
    assert entry.bytes(rows, columns + 1) >= size


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bf16", 2),
        ("torch.float16", 2),
        ("float32", 4),
        ("fp8_e4m3", 1),
        ("int8", 1),
        ("int4", 0.5),
        ("nvfp4", 0.5625),  # 4 bits and an fp8 scale per 16
        ("mxfp8", 33 / 32),
        ("q8_0", 34 / 32),
        ("q4_0", 18 / 32),
        ("fp8_ds_mla", 656 / 576),
    ],
)
def test_bytes_of_a_cached_element(dtype, expected):
    assert element_bytes(dtype) == expected


def test_spellings_are_one():
    assert element_name("Torch.Float8_E4M3fn") == "fp8"
    assert find_format("W4A16") is find_format("int4")


@pytest.mark.parametrize("find", [find_format, element_bytes])
def test_an_unknown_name_is_answered_with_the_nearest(find):
    with pytest.raises(UnknownNameError, match=r"'nvfp5'; did you mean 'nvfp4'"):
        find("nvfp5")
