"""Folders of weights: bytes by part, formats from headers, indexes without their files."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from roofcast.hardware.errors import FileFormatError
from roofcast.simulator import checkpoints
from roofcast.simulator.checkpoint_parts import part_of
from roofcast.simulator.families import registry
from roofcast.simulator.quantization import apply, quantization

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
FP8 = {"quant_method": "fp8", "weight_block_size": [32, 32]}
BF16 = np.uint16  # numpy has no bfloat16; two bytes an element are all that counts here
SHAPES = {
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (32, 64),
    "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (128, 64),
    "mlp.up_proj": (128, 64),
    "mlp.down_proj": (64, 128),
}


def fp8_layer(index):
    """One layer as DeepSeek stores it: a byte an element and f32 scales of 32 x 32 blocks."""
    tensors = {}
    for name, (rows, columns) in SHAPES.items():
        stem = f"model.layers.{index}.{name}"
        tensors[f"{stem}.weight"] = np.zeros((rows, columns), np.uint8)
        tensors[f"{stem}.weight_scale_inv"] = np.zeros((rows // 32, columns // 32), np.float32)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"model.layers.{index}.{norm}.weight"] = np.zeros(64, BF16)
    return tensors


def outer(dtype=BF16):
    return {
        "model.embed_tokens.weight": np.zeros((100, 64), dtype),
        "model.norm.weight": np.zeros(64, dtype),
        "lm_head.weight": np.zeros((100, 64), dtype),
    }


def sharded(folder):
    """Three shards with an index."""
    pieces = {
        "model-00001-of-00003.safetensors": fp8_layer(0),
        "model-00002-of-00003.safetensors": fp8_layer(1),
        "model-00003-of-00003.safetensors": outer(),
    }
    for name, tensors in pieces.items():
        save_file(tensors, folder / name)
    total = sum(array.nbytes for tensors in pieces.values() for array in tensors.values())
    names = {tensor: name for name, tensors in pieces.items() for tensor in tensors}
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (folder / checkpoints.INDEX).write_text(json.dumps(index))
    return total


@pytest.fixture
def fp8():
    architecture, _ = registry.parse(LLAMA, "test")
    return apply(architecture, quantization({"quantization_config": FP8}))


def test_shards_are_summed_and_told_apart(tmp_path):
    total = sharded(tmp_path)
    found = checkpoints.read(tmp_path)
    assert found.total_bytes == total
    attention = 2 * (64 * 64 * 2 + 32 * 64 * 2) + 2 * 4 * (4 + 2 + 2 + 4)
    assert found.bytes_by_part() == {
        "embeddings": 100 * 64 * 2,
        "attention": attention,
        "mlp": 2 * 3 * (128 * 64 + 4 * 8),
        "norms": 5 * 64 * 2,
        "lm_head": 100 * 64 * 2,
    }


def test_where_config_and_headers_agree_nothing_changes(tmp_path, fp8):
    sharded(tmp_path)
    found = checkpoints.read(tmp_path)
    assert checkpoints.stored(fp8, found) == fp8
    assert fp8.weight_bytes == found.total_bytes


def test_the_headers_win_over_a_config_that_says_otherwise(tmp_path):
    # NVIDIA's early checkpoints: nothing in config.json, so it alone says bf16.
    sharded(tmp_path)
    architecture, _ = registry.parse(LLAMA, "test")
    made = checkpoints.stored(architecture, checkpoints.read(tmp_path))
    assert made.weight_bytes == checkpoints.read(tmp_path).total_bytes
    assert made.layers[0].weights[0].bytes == 64 * 64 + 4 * 4


def test_the_headers_tell_the_dtype(tmp_path):
    save_file(outer(np.float16), tmp_path / "model.safetensors")
    architecture, _ = registry.parse(LLAMA, "test")
    made = checkpoints.stored(architecture, checkpoints.read(tmp_path))
    assert made.head[-1].format.name == "fp16"


def test_experts_share_what_is_stored_for_all(tmp_path):
    fields = LLAMA | {
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "head_dim": 16,
    }
    architecture, _ = registry.parse(fields, "test")
    tensors = outer()
    for i in range(2):
        for expert in range(4):
            for name, shape in (("gate", (32, 64)), ("up", (32, 64)), ("down", (64, 32))):
                key = f"model.layers.{i}.mlp.experts.{expert}.{name}_proj.weight"
                tensors[key] = np.zeros(shape, np.float16)
    save_file(tensors, tmp_path / "model.safetensors")
    found = checkpoints.read(tmp_path)
    assert found.bytes_by_part()["experts"] == 2 * 4 * 3 * 32 * 64 * 2
    made = checkpoints.stored(architecture, found)
    assert made.layers[0].experts.bytes == 4 * 3 * 32 * 64 * 2
    assert "were not found in the files" in made.warnings[-1]  # attention is not in this file


def test_gpt_oss_stores_gate_and_up_of_all_experts_as_one(tmp_path):
    fields = LLAMA | {
        "model_type": "gpt_oss",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "intermediate_size": 64,
        "head_dim": 16,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"],
        "quantization_config": {"quant_method": "mxfp4"},
    }
    plain, _ = registry.parse(fields, "test")
    tensors = outer()
    for i in range(2):
        for name, rows in (("gate_up_proj", 128), ("down_proj", 64)):
            stem = f"model.layers.{i}.mlp.experts.{name}"
            tensors[f"{stem}_blocks"] = np.zeros((4, rows, 2, 16), np.uint8)
            tensors[f"{stem}_scales"] = np.zeros((4, rows, 2), np.uint8)
            tensors[f"{stem}_bias"] = np.zeros((4, rows), BF16)
    save_file(tensors, tmp_path / "model.safetensors")
    found = checkpoints.read(tmp_path)
    configured = apply(plain, quantization(fields))
    made = checkpoints.stored(configured, found)
    assert made.layers[0].experts == configured.layers[0].experts
    assert 2 * made.layers[0].experts.bytes == found.bytes_by_part()["experts"]


def test_an_index_alone_gives_the_total(tmp_path):
    total = sharded(tmp_path)
    for shard in tmp_path.glob("*.safetensors"):
        shard.unlink()
    found = checkpoints.read(tmp_path)
    assert (found.total_bytes, found.tensors, found.warnings) == (total, (), ())


def test_a_download_in_progress_is_said(tmp_path, fp8):
    sharded(tmp_path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    found = checkpoints.read(tmp_path)
    assert "1 of 3 weight files are missing" in found.warnings[0]
    assert checkpoints.stored(fp8, found) == fp8


def test_mistrals_second_copy_is_not_counted(tmp_path):
    save_file(outer(), tmp_path / "model.safetensors")
    save_file(outer(), tmp_path / "consolidated.safetensors")
    assert checkpoints.read(tmp_path).total_bytes == sum(a.nbytes for a in outer().values())


def test_the_same_tensor_in_two_files(tmp_path):
    save_file(outer(), tmp_path / "a.safetensors")
    save_file(outer(), tmp_path / "b.safetensors")
    with pytest.raises(FileFormatError, match="which another file stores too"):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"weight_map": []},
        {"weight_map": {"a": 1}},
        {"weight_map": {"a": "x.safetensors"}},
        {"weight_map": {"a": "x.safetensors"}, "metadata": {"total_size": "big"}},
        {"weight_map": {"a": "x.safetensors"}, "metadata": {"total_size": -1}},
    ],
)
def test_a_senseless_index(tmp_path, index):
    (tmp_path / checkpoints.INDEX).write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=r"index\.json"):
        checkpoints.read(tmp_path)


def test_an_index_whose_files_lack_a_tensor(tmp_path):
    sharded(tmp_path)
    index = json.loads((tmp_path / checkpoints.INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00003.safetensors"
    (tmp_path / checkpoints.INDEX).write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=r"lack 1 tensors, 'model\.extra\.weight' first"):
        checkpoints.read(tmp_path)


def test_git_lfs_pointers_are_no_weights(tmp_path):
    total = sharded(tmp_path)
    for shard in tmp_path.glob("*.safetensors"):
        shard.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    found = checkpoints.read(tmp_path)
    assert (found.total_bytes, found.tensors) == (total, ())
    (tmp_path / checkpoints.INDEX).unlink()
    assert checkpoints.read(tmp_path) is None


def test_safetensors_describe_no_model_by_themselves(tmp_path):
    save_file(outer(), tmp_path / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"config\.json beside it"):
        checkpoints.architecture_of(checkpoints.read(tmp_path), "x")


def test_a_folder_without_weights(tmp_path):
    assert checkpoints.read(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.0.mlp.gate.weight", "router"),
        ("model.layers.0.mlp.gate.e_score_correction_bias", "router"),
        ("model.layers.0.block_sparse_moe.gate.weight", "router"),
        ("model.layers.0.mlp.router.bias", "router"),
        ("model.language_model.layers.0.router.proj.weight", "router"),
        ("model.layers.0.mlp.gate_proj.weight_scale", "mlp"),
        ("model.layers.0.mlp.experts.3.gate_proj.weight_packed", "experts"),
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", "experts"),
        ("model.layers.0.mlp.shared_experts.up_proj.weight", "shared_experts"),
        ("model.layers.0.mlp.shared_expert_gate.weight", "shared_experts"),
        ("model.layers.0.self_attn.q_norm.weight", "norms"),
        ("model.layers.0.self_attn.kv_a_layernorm.weight", "norms"),
        ("model.layers.0.self_attn.indexer.wq_b.weight_scale_inv", "indexer"),
        ("model.layers.0.linear_attn.in_proj_qkv.weight", "linear_attention"),
        ("backbone.layers.0.mixer.in_proj.weight", "linear_attention"),
        ("backbone.layers.0.mixer.q_proj.weight", "attention"),
        ("backbone.layers.0.mixer.up_proj.weight", "mlp"),
        ("backbone.layers.0.mixer.experts.5.up_proj.weight", "experts"),
        ("backbone.layers.0.mixer.gate.weight", "router"),
        ("layers.0.attn.wq_a.scale", "attention"),
        ("layers.0.ffn.experts.3.w1.weight", "experts"),
        ("mtp.layers.0.self_attn.q_proj.weight", "mtp"),
        ("model.visual.blocks.0.attn.qkv.weight", "vision"),
        ("vision_tower.encoder.layers.0.mlp.fc1.weight", "vision"),
        ("transformer.wte.weight", "embeddings"),
        ("transformer.h.0.attn.c_attn.weight", "attention"),
        ("lm_head.weight", "lm_head"),
        ("head.weight", "lm_head"),
        ("model.norm.weight", "norms"),
        ("rope_freqs.weight", "other"),
    ],
)
def test_parts_by_the_names_checkpoints_use(name, part):
    assert part_of(name) == part
