"""GGUF headers: checked against the `gguf` package's writer and reader."""

import struct

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofcast.hardware.errors import FileFormatError, UnknownNameError
from roofcast.simulator import checkpoints
from roofcast.simulator.families import registry
from roofcast.simulator.gguf_file import TYPES, read_gguf
from roofcast.simulator.gguf_names import read_model

HIDDEN, WIDTH, HEADS, KV_HEADS, VOCAB, LAYERS = 256, 512, 4, 2, 3000, 2


def packed(rows, columns, kind):
    """Zeros of that many elements in a tensor type."""
    if kind is Kind.F32:
        return np.zeros((rows, columns) if columns else rows, np.float32)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    return np.zeros((rows, columns // elements * size), np.uint8)


def write(path, architecture="llama", *, tied=True, fill=lambda writer: None, layer=None):
    """A small model in the layout of llama.cpp's converter."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_token_list([f"token {i}" for i in range(VOCAB)])
    fill(writer)

    def add(name, rows, columns=0, kind=Kind.F32):
        writer.add_tensor(name, packed(rows, columns, kind), raw_dtype=kind)

    add("token_embd.weight", VOCAB, HIDDEN, Kind.Q4_K)
    add("output_norm.weight", HIDDEN)
    if not tied:
        add("output.weight", VOCAB, HIDDEN, Kind.Q6_K)
    for i in range(LAYERS):
        (layer or dense_layer)(add, f"blk.{i}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def attention(add, prefix):
    add(f"{prefix}.attn_q.weight", HIDDEN, HIDDEN, Kind.Q4_K)
    add(f"{prefix}.attn_k.weight", HIDDEN // 2, HIDDEN, Kind.Q4_K)
    add(f"{prefix}.attn_v.weight", HIDDEN // 2, HIDDEN, Kind.Q6_K)
    add(f"{prefix}.attn_output.weight", HIDDEN, HIDDEN, Kind.Q4_K)
    add(f"{prefix}.attn_norm.weight", HIDDEN)
    add(f"{prefix}.ffn_norm.weight", HIDDEN)


def dense_layer(add, prefix):
    attention(add, prefix)
    add(f"{prefix}.ffn_gate.weight", WIDTH, HIDDEN, Kind.Q4_K)
    add(f"{prefix}.ffn_up.weight", WIDTH, HIDDEN, Kind.Q4_K)
    add(f"{prefix}.ffn_down.weight", HIDDEN, WIDTH, Kind.Q6_K)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write(tmp_path_factory.mktemp("gguf") / "small.gguf")


def test_types_are_the_packages():
    known = {int(kind): kind.name for kind in Kind}
    assert {number: name for number, name in known.items() if number in TYPES} == TYPES


def test_tensors_and_metadata_are_what_the_packages_reader_finds(small):
    ours, theirs = read_gguf(small), gguf.GGUFReader(small)
    assert {t.name: t.bytes for t in ours.tensors} == {
        t.name: int(t.n_bytes) for t in theirs.tensors
    }
    assert ours.metadata["llama.embedding_length"] == HIDDEN
    assert ours.metadata["llama.rope.freq_base"] == 500000.0
    assert ours.lengths["tokenizer.ggml.tokens"] == VOCAB
    assert "tokenizer.ggml.tokens" not in ours.metadata  # a vocabulary is counted, not kept


def test_a_llama_file_becomes_an_architecture_of_its_exact_bytes(small):
    checkpoint = checkpoints.read(small)
    architecture, family = registry.parse(checkpoint.model.fields, "small")
    assert "llama" in family.model_types
    made = checkpoints.stored(architecture, checkpoint)
    assert made.warnings == architecture.warnings
    assert made.weight_bytes == checkpoint.total_bytes == sum(t.bytes for t in checkpoint.tensors)
    formats = {w.path: w.format.name for w in made.layers[0].weights}
    assert formats["self_attn.q_proj"] == "q4_k"
    assert formats["self_attn.v_proj"] == formats["mlp.down_proj"] == "q6_k"
    assert formats["input_layernorm"] == "fp32"
    assert made.head[-1].bytes == VOCAB * HIDDEN // 256 * 144  # tied: the head reads the table
    assert checkpoint.bytes_by_part() == {
        "embeddings": VOCAB * 144,
        "attention": LAYERS * ((256 + 128 + 256) * 144 + 128 * 210),
        "mlp": LAYERS * (2 * WIDTH * 144 + HIDDEN * 2 * 210),
        "norms": (2 * LAYERS + 1) * HIDDEN * 4,
    }


def test_an_untied_head_in_a_folder_of_one_file(tmp_path):
    write(tmp_path / "untied.gguf", tied=False)
    checkpoint = checkpoints.read(tmp_path)
    made = checkpoints.architecture_of(checkpoint, "untied")
    assert made.name == "untied"
    assert made.head[-1].format.name == "q6_k"
    assert made.weight_bytes == checkpoint.total_bytes


def moe_layer(add, prefix):
    attention(add, prefix)
    for name in ("attn_q_norm", "attn_k_norm"):
        add(f"{prefix}.{name}.weight", 64)
    add(f"{prefix}.ffn_gate_inp.weight", 8, HIDDEN)
    for name, rows, columns in (("gate", 256, HIDDEN), ("up", 256, HIDDEN), ("down", HIDDEN, 256)):
        add(f"{prefix}.ffn_{name}_exps.weight", 8 * rows, columns, Kind.Q5_K)


def test_a_mixture_of_experts(tmp_path):
    def fill(writer):
        writer.add_expert_count(8)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(256)
        writer.add_key_length(64)
        writer.add_value_length(64)

    path = write(tmp_path / "moe.gguf", "qwen3moe", fill=fill, layer=moe_layer)
    checkpoint = checkpoints.read(path)
    architecture, _ = registry.parse(checkpoint.model.fields, "moe")
    made = checkpoints.stored(architecture, checkpoint)
    assert made.weight_bytes == checkpoint.total_bytes
    stack = made.layers[1].experts
    assert (stack.count, stack.top_k) == (8, 2)
    assert {w.format.name for w in stack.weights} == {"q5_k"}
    assert checkpoint.bytes_by_part()["experts"] == LAYERS * 8 * 3 * 256 * 176
    assert checkpoint.bytes_by_part()["router"] == LAYERS * 8 * HIDDEN * 4


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        ("qwen2", "qwen2"),
        ("qwen3", "qwen3"),
        ("gemma", "gemma"),
        ("gemma2", "gemma2"),
        ("gemma3", "gemma3_text"),
        ("phi3", "phi3"),
    ],
)
def test_other_architectures_are_read_by_their_families(tmp_path, architecture, model_type):
    def fill(writer):
        writer.add_sliding_window(1024)
        writer.add_key_length(64)

    model = read_model(write(tmp_path / "other.gguf", architecture, fill=fill))
    assert model.fields["model_type"] == model_type
    made, _ = registry.parse(model.fields, architecture)
    assert (len(made.layers), made.hidden_size, made.vocab_size) == (LAYERS, HIDDEN, VOCAB)
    core = made.layers[0].cores[0]
    assert (core.query_heads, core.kv_heads, core.key_dim) == (HEADS, KV_HEADS, 64)


def mxfp4_layer(add, prefix):
    attention(add, prefix)
    add(f"{prefix}.ffn_gate_inp.weight", 8, HIDDEN)
    for name, rows, columns in (("gate", 256, HIDDEN), ("up", 256, HIDDEN), ("down", HIDDEN, 256)):
        add(f"{prefix}.ffn_{name}_exps.weight", 8 * rows, columns, Kind.MXFP4)


@pytest.mark.parametrize(
    ("architecture", "width"), [("gpt-oss", 256), ("qwen2moe", 256), ("llama", WIDTH)]
)
def test_other_mixtures_of_experts(tmp_path, architecture, width):
    """gpt-oss, whose gate and up the config knows as one; Qwen2-MoE; Mixtral, written as llama."""

    def fill(writer):
        writer.add_expert_count(8)
        writer.add_expert_used_count(2)
        writer.add_sliding_window(128)
        if architecture != "llama":
            writer.add_expert_feed_forward_length(256)
            writer.add_expert_shared_feed_forward_length(512)

    path = write(tmp_path / "moe.gguf", architecture, fill=fill, layer=mxfp4_layer)
    made = checkpoints.architecture_of(checkpoints.read(path), "moe")
    stack = made.layers[0].experts
    assert (stack.count, stack.top_k) == (8, 2)
    assert sum(w.rows * w.columns for w in stack.weights) == 3 * width * HIDDEN
    if width == 256:  # as in the file: 17 bytes for 32 elements
        matrices = stack.bytes - 8 * sum(2 * w.rows for w in stack.weights if w.bias)
        assert matrices == 8 * 3 * 256 * 256 * 17 / 32


def test_a_split_model_is_read_from_all_its_pieces(tmp_path, small):
    whole = checkpoints.read(small)
    for number in (1, 2):
        writer = gguf.GGUFWriter(tmp_path / f"big-{number:05}-of-00002.gguf", "llama")
        if number == 1:
            for key in ("block_count", "embedding_length", "feed_forward_length"):
                value = {"block_count": LAYERS, "embedding_length": HIDDEN}.get(key, WIDTH)
                writer.add_uint32(f"llama.{key}", value)
            writer.add_head_count(HEADS)
            writer.add_head_count_kv(KV_HEADS)
        for tensor in gguf.GGUFReader(small).tensors[number - 1 :: 2]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    found = checkpoints.read(tmp_path / "big-00002-of-00002.gguf")
    assert found.total_bytes == checkpoints.read(tmp_path).total_bytes == whole.total_bytes
    (tmp_path / "big-00001-of-00002.gguf").unlink()
    with pytest.raises(FileFormatError, match=r"00001-of-00002.*cannot be read"):
        checkpoints.read(tmp_path / "big-00002-of-00002.gguf")


def test_an_unknown_architecture_names_those_known(tmp_path):
    with pytest.raises(UnknownNameError, match="GGUF architecture 'rwkv7'"):
        read_model(write(tmp_path / "x.gguf", "rwkv7"))


def test_a_missing_size(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_head_count(4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(FileFormatError, match=r"llama\.block_count: is missing"):
        read_model(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"GGU", "truncated"),
        (b"GGML" + bytes(60), "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "counts make no sense"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62), "truncated"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"a", 99), "unknown metadata type 99"),
    ],
)
def test_what_is_no_gguf_is_said_in_one_line(tmp_path, content, problem):
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=problem) as caught:
        read_gguf(path)
    assert "\n" not in str(caught.value)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_truncation_is_refused(tmp_path, small, data):
    content = small.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(FileFormatError):
        read_gguf(path)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_flipped_header_bytes_are_read_or_refused(tmp_path, small, data):
    broken = bytearray(small.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, 1200))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(bytes(broken))
    try:
        model = read_model(path)
    except (FileFormatError, UnknownNameError):
        return
    assert sum(tensor.bytes for tensor in model.tensors) <= len(broken)
