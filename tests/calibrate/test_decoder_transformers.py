"""The Torch decoder against transformers' own models with the same small random weights."""

import pytest

from roofcast.simulator.models import from_fields

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
decoder_module = pytest.importorskip("roofcast.calibrate.decoder")

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = {"vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GATED = {**SIZES, **TOKENS, "intermediate_size": 80, "max_position_embeddings": 64}
GROUPED = {**GATED, "num_key_value_heads": 2}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

GEMMA3 = {
    "head_dim": 16,
    "query_pre_attn_scalar": 12,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
    },
}

# name: (stem of transformers' classes, fields of the config)
MODELS = {
    "llama": ("Llama", GROUPED),
    "llama-mqa-biased": (
        "Llama",
        {**GROUPED, "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
    ),
    "llama-3.1-rope": ("Llama", {**GROUPED, "rope_parameters": LLAMA3}),
    "llama-tied": ("Llama", {**GROUPED, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 5}),
    "qwen2": ("Qwen2", GROUPED),
    "qwen2-windows": (
        "Qwen2",
        {**GROUPED, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 24}),
    "phi3": ("Phi3", GROUPED),
    "phi3-partial-rope": ("Phi3", {**GROUPED, "partial_rotary_factor": 0.5}),
    "starcoder2": ("Starcoder2", {**GROUPED, "sliding_window": 5}),
    "mixtral": ("Mixtral", {**GROUPED, "num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen3-moe": ("Qwen3Moe", {**GROUPED, **MOE, "head_dim": 24, "norm_topk_prob": True}),
    "qwen3-moe-plain-top-k": ("Qwen3Moe", {**GROUPED, **MOE, "norm_topk_prob": False}),
    "qwen2-moe": ("Qwen2Moe", {**GROUPED, **MOE, "shared_expert_intermediate_size": 40}),
    "gemma": ("Gemma", {**GROUPED, "head_dim": 16}),
    "gemma3": ("Gemma3", {**GROUPED, **GEMMA3}),
    "gpt2": (
        "GPT2",
        {"vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64, **TOKENS},
    ),
    "opt": ("OPT", {**SIZES, **TOKENS, "ffn_dim": 80, "max_position_embeddings": 64}),
}
EXPERTS = {"mixtral": ("w1", "w3", "w2")}
CONFIGS = {"Gemma3": "Gemma3TextConfig"}
LAYERS_AT = {"GPT2": "transformer.h", "OPT": "model.decoder.layers"}


def reference(name):
    """transformers' model with all weights random, biases and norms too."""
    stem, fields = MODELS[name]
    config = getattr(transformers, CONFIGS.get(stem, f"{stem}Config"))(**fields)
    config._attn_implementation = "eager"
    suffix = "LMHeadModel" if stem == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{stem}{suffix}")(config).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.15, generator=generator)
        if parameter.dim() == 1:
            parameter.data.add_(0.5)
    return model


def by_path(model):
    """Its tensors under the names of checkpoints, experts stacked, matrices [rows, columns]."""
    kind, made = model.config.model_type, {}
    gate, up, down = EXPERTS.get(kind, ("gate_proj", "up_proj", "down_proj"))
    for name, tensor in model.state_dict().items():
        stem, _, leaf = name.rpartition(".")
        if leaf == "gate_up_proj":
            halves = tensor.chunk(2, dim=1)
            made |= {f"{stem}.{gate}.weight": halves[0], f"{stem}.{up}.weight": halves[1]}
        elif leaf == "down_proj":
            made[f"{stem}.{down}.weight"] = tensor
        else:
            # GPT-2's Conv1D holds its matrices the other way round.
            turned = kind == "gpt2" and ".h." in name and tensor.dim() == 2
            made[name] = tensor.T if turned else tensor
    if kind == "mixtral":  # transformers renames this block, its checkpoints do not
        made = {key.replace(".mlp.", ".block_sparse_moe."): made[key] for key in made}
    return made


def ours(model):
    """The decoder of the same config and weights."""
    architecture = from_fields(model.config.to_dict(), name=model.config.model_type)
    decoder = decoder_module.Decoder(architecture, dtype="fp32")
    stem = type(model).__name__.removesuffix("LMHeadModel").removesuffix("ForCausalLM")
    decoder.load_state_dict_by_path(by_path(model), LAYERS_AT.get(stem, "model.layers"))
    return decoder


@pytest.fixture(scope="module", params=MODELS)
def pair(request):
    model = reference(request.param)
    return model, ours(model)


def prompts(length=19):
    return torch.randint(97, (2, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_full_pass_equals_transformers(pair):
    model, decoder = pair
    tokens = prompts()
    expected = model(tokens).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(decoder.all_logits(tokens), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_cached_decode_equals_transformers(pair):
    model, decoder = pair
    tokens = prompts()
    expected = model(tokens).logits
    cache = decoder.new_cache(2, 19)
    made = [decoder.prefill(tokens[:, :7], cache)]
    made += [decoder.step(token, cache) for token in tokens[:, 7:].unbind(1)]
    torch.testing.assert_close(torch.stack(made, 1), expected[:, 6:], rtol=1e-4, atol=1e-4)
