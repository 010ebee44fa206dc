"""llama.cpp's recipes against the sizes of published GGUF files.

A file is its tensors and a header of metadata and names, which is the same for every recipe of a
model (up to a few bytes where a name in it is longer): so what a file is larger than our tensors must
be one small number per model. Sizes: the repositories' file listings.
"""

import pytest

from roofcast.simulator.families import registry
from roofcast.simulator.quantization import requantise

LLAMA_2_7B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
LLAMA_3_8B = LLAMA_2_7B | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
LLAMA_3_2_3B = LLAMA_3_8B | {
    "num_hidden_layers": 28,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_attention_heads": 24,
    "head_dim": 128,
    "tie_word_embeddings": True,
}
MISTRAL_7B = LLAMA_3_8B | {"model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096}
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


def beyond(fields, recipe, file_bytes):
    """Bytes of a file beyond its tensors."""
    architecture, _ = registry.parse(fields, "test")
    return file_bytes - requantise(architecture, recipe).weight_bytes


@pytest.mark.parametrize(
    ("recipe", "file_bytes"),
    [  # TheBloke/Llama-2-7B-GGUF and -Chat-GGUF
        ("q3_k_m", 3_298_004_672),
        ("q4_0", 3_825_807_040),
        ("q4_k_m", 4_081_004_224),
        ("q5_k_m", 4_783_156_928),
        ("q6_k", 5_529_194_176),
        ("q8_0", 7_161_089_728),
    ],
)
def test_llama_2_7b_to_the_byte_with_one_header(recipe, file_bytes):
    assert beyond(LLAMA_2_7B, recipe, file_bytes) == 741_056


@pytest.mark.parametrize(
    ("fields", "recipe", "file_bytes", "header"),
    [
        # bartowski/Meta-Llama-3-8B-Instruct-GGUF: 128,256 tokens and 280,147 merges make the header
        (LLAMA_3_8B, "q4_k_m", 4_920_734_272, (7.5e6, 8e6)),
        # bartowski/Llama-3.2-3B-Instruct-GGUF: tied, so the one table is stored as an output is
        (LLAMA_3_2_3B, "q4_k_m", 2_019_377_696, (7.5e6, 8e6)),
        # TheBloke/OpenHermes-2.5-Mistral-7B-GGUF, two tokens more than Mistral's
        (MISTRAL_7B | {"vocab_size": 32002}, "q4_k_m", 4_368_450_304, (0.7e6, 0.8e6)),
        # bartowski/Qwen_Qwen3-30B-A3B-GGUF: 128 experts, 151,936 tokens
        (QWEN3_30B, "q4_k_m", 18_556_686_912, (5.5e6, 6.5e6)),
    ],
    ids=["llama-3-8b", "llama-3.2-3b", "mistral-7b", "qwen3-30b-a3b"],
)
def test_other_models_within_a_header_of_a_vocabularys_size(fields, recipe, file_bytes, header):
    low, high = header
    assert low < beyond(fields, recipe, file_bytes) < high


def test_rows_of_no_whole_blocks_fall_back():
    # Qwen2-0.5B's 896 columns are 3.5 blocks of 256: llama.cpp takes q5_0 for q4_k, q8_0 for q6_k.
    small = LLAMA_2_7B | {"hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2}
    architecture, _ = registry.parse(small, "test")
    made = requantise(architecture, "q4_k_m")
    names = {w.format.name for w in made.layers[5].weights if w.part == "attention"}
    assert names <= {"q5_0", "q8_0"}
