"""The Torch decoder against itself: cached against full passes, rings against masks, ranks, seeds."""

import math
from dataclasses import replace

import pytest

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator.models import from_fields
from tests.calibrate.tiny_models import FIELDS, tiny

torch = pytest.importorskip("torch")
attention = pytest.importorskip("roofcast.calibrate.attention")
decoder_module = pytest.importorskip("roofcast.calibrate.decoder")
generation = pytest.importorskip("roofcast.calibrate.generation")
mlp = pytest.importorskip("roofcast.calibrate.mlp")
rope = pytest.importorskip("roofcast.calibrate.rope")
sampling = pytest.importorskip("roofcast.calibrate.sampling")
Decoder = decoder_module.Decoder

pytestmark = pytest.mark.usefixtures("one_thread")
TIGHT = {"rtol": 1e-4, "atol": 2e-5}


def tokens_of(decoder, batch, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    vocabulary = decoder.architecture.vocab_size
    return torch.randint(vocabulary, (batch, length), generator=generator)


def stepwise(decoder, tokens, prompt, *, span=None):
    """Logits after each token from the last of the prompt on: prefill, then cached steps."""
    cache = decoder.new_cache(tokens.shape[0], tokens.shape[1])
    logits = [decoder.prefill(tokens[:, :prompt], cache)]
    for token in tokens[:, prompt:].unbind(1):
        if span is None:
            logits.append(decoder.step(token, cache))
        else:
            with torch.inference_mode():
                logits.append(decoder.step_masked(token, cache, span))
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("prompt", [1, 3, 11])
def test_cached_decode_equals_the_full_pass(kind, prompt):
    decoder = Decoder(tiny(kind), dtype="fp32")
    tokens = tokens_of(decoder, 2, 18)
    full = decoder.all_logits(tokens)[:, prompt - 1 :]
    assert full.std() > 0.05  # the model says something
    torch.testing.assert_close(stepwise(decoder, tokens, prompt), full, **TIGHT)


@pytest.mark.parametrize("kind", ["gqa", "windowed", "some_windows", "learned_positions"])
@pytest.mark.parametrize("span", [20, 24])
def test_masked_steps_equal_exact_ones(kind, span):
    decoder = Decoder(tiny(kind), dtype="fp32")
    tokens = tokens_of(decoder, 2, 24)
    masked = stepwise(decoder, tokens[:, :20], 4, span=span)
    torch.testing.assert_close(masked, stepwise(decoder, tokens[:, :20], 4), **TIGHT)


def test_ring_of_a_window_equals_a_full_cache_under_a_window_mask():
    ring = Decoder(tiny("windowed"), dtype="fp32")
    cache = ring.new_cache(2, 40)
    assert {store.shape[2] for store in cache.keys} == {5}

    whole = Decoder(tiny("windowed"), dtype="fp32")
    tokens = tokens_of(ring, 2, 40)
    # The reference keeps all keys and masks them by the definition of a window.
    expected = reference_logits(whole, tokens, window=5)
    torch.testing.assert_close(stepwise(ring, tokens, 7), expected[:, 6:], **TIGHT)
    assert not torch.allclose(expected, reference_logits(whole, tokens, window=None), atol=1e-3)


def reference_logits(decoder, tokens, window):
    """A full pass with explicit scores, K and V expanded to query heads, and a written-out mask."""
    batch, new = tokens.shape
    x = torch.nn.functional.embedding(tokens, decoder.table)
    cos, sin = decoder.new_cache(batch, new).rotations[0][:, :, None].unbind(1)
    past = torch.arange(new)[:, None] - torch.arange(new)
    hidden = (past < 0) | (past >= (window or new))
    for layer in decoder.layers:
        block = layer.attention.block
        heads = block.heads
        qkv = block.qkv(layer.attention.norm(x)).view(batch, new, -1, heads.dim)
        q, k, v = qkv.split((heads.query, heads.kv, heads.kv), dim=2)
        q, k = rope.rotate(q, cos, sin), rope.rotate(k, cos, sin)
        k, v = (t.repeat_interleave(heads.query // heads.kv, dim=2) for t in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(heads.dim)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        mixed = torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2)
        x = layer.mlp(x + block.output(mixed))
    return decoder.head(decoder.norm(x))


@pytest.mark.parametrize(("new", "window"), [(700, 40), (1100, 600), (20, 1)])
def test_windowed_prompts_in_blocks_equal_one_mask(new, window):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, new, 8, generator=generator)
    k, v = torch.randn(2, 1, 2, new, 8, generator=generator)
    mask = attention.band(0, new, 0, window, q.device)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(attention.attend_causal(q, k, v, 0.3, window), expected, **TIGHT)


@pytest.mark.parametrize("parts", [1, 4])
def test_attention_in_parts_equals_the_fused_kernel(parts):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 2, 4, 16, generator=generator)
    k, v = torch.randn(2, 3, 2, 32, 16, generator=generator)
    mask = torch.zeros(32).masked_fill(torch.arange(32) >= 21, float("-inf"))
    expected = attention.attend(q, k[:, :, :21], v[:, :, :21], None, 0.25)
    made = attention.attend_in_parts(q, k, v, mask, 0.25, parts=parts)
    torch.testing.assert_close(made, expected, **TIGHT)
    torch.testing.assert_close(attention.attend(q, k, v, mask, 0.25), expected, **TIGHT)


@pytest.mark.parametrize("kind", ["gqa", "experts", "windowed"])
def test_a_sequence_does_not_depend_on_its_batch(kind):
    decoder = Decoder(tiny(kind), dtype="fp32")
    tokens = tokens_of(decoder, 5, 14)
    together = stepwise(decoder, tokens, 6)
    for row in range(5):
        alone = stepwise(decoder, tokens[row : row + 1], 6)
        torch.testing.assert_close(alone[0], together[row], **TIGHT)


def test_experts_equal_running_every_expert_on_every_token():
    decoder = Decoder(tiny("experts"), dtype="fp32")
    moe = decoder.layers[0].mlp.block
    x = torch.randn(7, 48, generator=torch.Generator().manual_seed(0))
    chosen = moe.router(x).softmax(-1)
    kept = torch.where(chosen >= chosen.topk(2).values[:, 1:], chosen, 0)
    kept = kept / kept.sum(-1, keepdim=True)
    experts = zip(moe.experts.ups, moe.experts.downs, strict=True)
    every = torch.stack([down(moe.experts.activation(up(x))) for up, down in experts], 1)
    torch.testing.assert_close(moe(x), (kept[..., None] * every).sum(1), **TIGHT)


def test_only_touched_experts_are_read(monkeypatch):
    decoder = Decoder(tiny("experts"), dtype="fp32")
    moe, read = decoder.layers[0].mlp.block, []
    for index, up in enumerate(moe.experts.ups):
        up.register_forward_pre_hook(lambda *_, index=index: read.append(index))
    x = torch.randn(1, 48, generator=torch.Generator().manual_seed(1))
    chosen = moe.router(x).topk(2).indices.flatten().tolist()
    moe(x)
    assert sorted(read) == sorted(chosen)


def test_grouped_experts_equal_looped_ones():
    generator = torch.Generator().manual_seed(0)
    ups = torch.randn(4, 64, 32, generator=generator)
    downs = torch.randn(4, 32, 32, generator=generator)
    x, counts = torch.randn(9, 32, generator=generator), torch.tensor([2, 0, 6, 1])
    activation = mlp.Activation("silu", gated=True)
    looped = mlp.LoopedExperts(
        [mlp.Linear(up) for up in ups], [mlp.Linear(down) for down in downs], activation
    )
    grouped = mlp.GroupedExperts(ups, downs, activation)
    torch.testing.assert_close(grouped(x, counts), looped(x, counts), rtol=1e-4, atol=1e-4)


def test_top_k_weights_are_normalised_only_where_asked():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    all_weights = logits.softmax(-1)[0]
    plain, chosen = mlp.route(logits, 2, normalise=False)
    assert chosen.tolist() == [[2, 1]]
    torch.testing.assert_close(plain[0], all_weights[[2, 1]])
    assert mlp.route(logits, 2, normalise=True)[0].sum() == pytest.approx(1)


def test_a_seed_reproduces_weights_and_reply_and_another_does_not():
    def reply(weights_seed, draw_seed):
        decoder = Decoder(tiny("gqa"), dtype="fp32", seed=weights_seed)
        generator = torch.Generator().manual_seed(draw_seed)
        sampler = sampling.temperature(1.0)
        prompt = tokens_of(decoder, 2, 5)
        return generation.generate(decoder, prompt, 12, sampler, generator).tolist()

    first = reply(0, 0)
    assert first == reply(0, 0)
    assert first != reply(0, 1)
    assert first != reply(1, 0)


def test_greedy_reply_is_the_argmax_of_full_passes():
    decoder = Decoder(tiny("gqa"), dtype="fp32")
    tokens = tokens_of(decoder, 2, 4)
    reply = generation.generate(decoder, tokens, 6)
    for step in range(6):
        following = decoder.all_logits(tokens)[:, -1].argmax(-1)
        assert torch.equal(reply[:, step], following)
        tokens = torch.cat((tokens, following[:, None]), dim=1)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("kind", ["gqa", "experts", "offset_positions"])
def test_random_weights_keep_activations_finite_and_of_order_one(kind, dtype):
    deep = {"num_hidden_layers": 24}
    decoder = Decoder(tiny(kind, **deep), dtype=dtype)
    logits = stepwise(decoder, tokens_of(decoder, 2, 8), 6).float()
    assert logits.isfinite().all()
    assert 0.1 < logits.std() < 10


def test_packed_weights_give_what_plain_ones_give():
    plain = Decoder(tiny("experts"), dtype="bf16", packed=False)
    packed = Decoder(tiny("experts"), dtype="bf16", packed=True)
    tokens = tokens_of(plain, 2, 9)
    torch.testing.assert_close(
        packed.all_logits(tokens), plain.all_logits(tokens), rtol=0.05, atol=0.05
    )


def test_bf16_follows_fp32():
    tokens = tokens_of(Decoder(tiny("gqa")), 2, 12)
    exact = stepwise(Decoder(tiny("gqa"), dtype="fp32"), tokens, 6)
    rounded = stepwise(Decoder(tiny("gqa"), dtype="bf16"), tokens, 6).float()
    assert (rounded - exact).abs().max() < 0.05 * exact.std()


def test_rows_of_random_matrices_are_not_copies_of_each_other():
    decoder = Decoder(tiny("gqa", vocab_size=4096), dtype="fp32")
    rows = torch.nn.functional.normalize(decoder.table.detach(), dim=-1)
    likeness = (rows @ rows.T).fill_diagonal_(0)
    assert likeness.max() < 0.9


def test_filled_cache_steps_as_if_the_context_were_there():
    decoder = Decoder(tiny("some_windows"), dtype="bf16")
    cache = decoder.new_cache(3, 64)
    decoder.fill(cache, 50)
    assert cache.length == 50 == int(cache.position)
    assert all(store.count_nonzero() == store.numel() for store in (*cache.keys, *cache.values))
    logits = decoder.step(tokens_of(decoder, 3, 1)[:, 0], cache)
    assert cache.length == 51
    assert logits.shape == (3, 97)
    assert logits.isfinite().all()


def test_cache_holds_the_bytes_the_model_predicts():
    # 2 (K and V) x 3 layers x 2 KV heads x 8 dims x 2 bytes a token; a window keeps 5 tokens.
    assert Decoder(tiny("gqa")).new_cache(4, 100).bytes == 4 * 100 * 2 * 3 * 2 * 8 * 2
    assert Decoder(tiny("windowed")).new_cache(4, 100).bytes == 4 * 5 * 2 * 3 * 2 * 8 * 2


@pytest.mark.parametrize("kind", FIELDS)
def test_decoder_holds_the_parameters_of_its_architecture(kind):
    decoder = Decoder(tiny(kind), dtype="fp32")
    held = sum(parameter.numel() for parameter in decoder.parameters())
    heads = [layer.attention.block for layer in decoder.layers]
    # Norms of heads are held once for every head.
    spread = sum(a.norm.weight.numel() - 2 * a.heads.dim for a in heads if a.norm is not None)
    assert held - spread == decoder.architecture.parameters


def test_rewound_cache_can_be_used_again():
    decoder = Decoder(tiny("gqa"), dtype="fp32")
    tokens = tokens_of(decoder, 1, 6)
    cache = decoder.new_cache(1, 6)
    first = decoder.prefill(tokens, cache)
    cache.rewind()
    assert torch.equal(decoder.prefill(tokens, cache), first)


def test_llama3_scaling_follows_its_definition():
    scaling = FIELDS["stretched_rope"]["rope_scaling"]
    plain = rope.inverse_frequencies(10_000.0, 8, {})
    scaled = rope.inverse_frequencies(10_000.0, 8, scaling)
    for before, after in zip(plain.tolist(), scaled.tolist(), strict=True):
        wavelength = 2 * math.pi / before
        if wavelength < 32 / 4:
            expected = before
        elif wavelength > 32 / 1:
            expected = before / 8
        else:
            smooth = (32 / wavelength - 1) / (4 - 1)
            expected = (1 - smooth) * before / 8 + smooth * before
        assert after == pytest.approx(expected, rel=1e-5)


def test_linear_scaling_divides_every_frequency():
    plain = rope.inverse_frequencies(10_000.0, 8, {})
    scaled = rope.inverse_frequencies(10_000.0, 8, {"type": "linear", "factor": 4.0})
    torch.testing.assert_close(scaled * 4, plain)


def mla():
    fields = {**FIELDS["mha"], "model_type": "deepseek_v2", "n_routed_experts": 4}
    fields |= {"num_experts_per_tok": 2, "kv_lora_rank": 16, "q_lora_rank": None}
    fields |= {"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
    return from_fields({**fields, "moe_intermediate_size": 8, "n_shared_experts": 1}, name="mla")


def unknown_arithmetic():
    return replace(tiny("gqa"), numerics=None)


def quantised():
    from roofcast.simulator.formats import WeightFormat

    model = tiny("gqa")
    int4 = WeightFormat("int4", 4, "bf16", scale_bits=16, block_columns=16)
    layers = tuple(
        replace(layer, weights=tuple(replace(weight, format=int4) for weight in layer.weights))
        for layer in model.layers
    )
    return replace(model, layers=layers)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (mla, "multi-head latent attention"),
        (unknown_arithmetic, "the arithmetic of llama is not described"),
        (quantised, "stored as int4"),
        (lambda: tiny("gqa", hidden_act="xielu"), "activation 'xielu'"),
        (lambda: tiny("gqa", rope_scaling={"rope_type": "yarn", "factor": 4.0}), "'yarn'"),
    ],
)
def test_architectures_it_cannot_run_are_refused_in_one_line(make, reason):
    with pytest.raises(InputError, match=reason) as error:
        Decoder(make())
    assert "\n" not in str(error.value)
    assert "runs" in str(error.value)


def test_wrong_use_is_refused():
    decoder = Decoder(tiny("learned_positions"), dtype="fp32")
    with pytest.raises(CapacityError, match="64 learned positions"):
        decoder.new_cache(1, 65)
    cache = decoder.new_cache(2, 4)
    with pytest.raises(CapacityError, match="holds 4 tokens"):
        decoder.prefill(tokens_of(decoder, 2, 5), cache)
    with pytest.raises(InputError, match=r"must be \[2, 1 or more\]"):
        decoder.prefill(tokens_of(decoder, 3, 2), cache)
    decoder.prefill(tokens_of(decoder, 2, 4), cache)
    with pytest.raises(InputError, match="needs an empty cache"):
        decoder.prefill(tokens_of(decoder, 2, 4), cache)
    with pytest.raises(CapacityError, match="1 more do not fit"):
        decoder.step(tokens_of(decoder, 2, 1)[:, 0], cache)


def test_unknown_dtype_and_device_are_refused():
    with pytest.raises(InputError, match="unknown dtype 'fp8'"):
        Decoder(tiny("gqa"), dtype="fp8")
    with pytest.raises(InputError, match="unknown torch device"):
        Decoder(tiny("gqa"), device="gpu0")


def test_missing_and_misshapen_weights_are_named():
    decoder = Decoder(tiny("gqa"), dtype="fp32")
    with pytest.raises(InputError, match=r"lack 'model\.embed_tokens\.weight'"):
        decoder.load_state_dict_by_path({})
    wrong = {"model.embed_tokens.weight": torch.zeros(3, 48)}
    with pytest.raises(InputError, match=r"must have shape \(97, 48\), not \(3, 48\)"):
        decoder.load_state_dict_by_path(wrong)
