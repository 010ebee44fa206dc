"""Tensor-parallel decoders: the ranks together hold the model once and say what one rank says."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pytest

from roofcast.hardware.errors import InputError
from tests.calibrate.tiny_models import tiny

torch = pytest.importorskip("torch")
decoder_module = pytest.importorskip("roofcast.calibrate.decoder")
shards = pytest.importorskip("roofcast.calibrate.shards")
Decoder = decoder_module.Decoder

pytestmark = pytest.mark.usefixtures("one_thread")
EVEN = {"vocab_size": 96}
HEADS = {"num_attention_heads": 8, "hidden_size": 64}
KINDS = {
    "gqa": {**EVEN, **HEADS, "num_key_value_heads": 4},
    "mqa": {**EVEN, **HEADS},  # fewer KV heads than ranks: every rank keeps the one
    "tied": {**EVEN, **HEADS},
    "experts": {**EVEN, **HEADS},
    "shared_expert": {**EVEN, **HEADS, "num_key_value_heads": 8},
    "windowed": {**EVEN, **HEADS},
    "wide_heads": {**EVEN, **HEADS},
    "learned_positions": {**EVEN, "n_head": 8, "n_embd": 64},
    "offset_positions": {**EVEN, **HEADS, "word_embed_proj_dim": 64},
}


class Wire:
    """What ranks in threads of one process exchange their tensors through."""

    def __init__(self, ranks):
        self.barrier, self.slots = Barrier(ranks, timeout=60), [None] * ranks

    def all(self, rank, tensor):
        self.slots[rank] = tensor.clone()
        self.barrier.wait()
        seen = list(self.slots)
        self.barrier.wait()
        return seen


@dataclass(frozen=True)
class ThreadShard(shards.Shard):
    """A shard whose collectives run between threads, by their definition."""

    def sum(self, x):
        return torch.stack(self.group.all(self.rank, x)).sum(0)

    def gather(self, x):
        return torch.cat(self.group.all(self.rank, x), dim=-1)


def run(decoder, tokens):
    cache = decoder.new_cache(tokens.shape[0], tokens.shape[1])
    logits = [decoder.prefill(tokens[:, :5], cache)]
    logits += [decoder.step(token, cache) for token in tokens[:, 5:].unbind(1)]
    return torch.stack(logits, 1)


def tokens_of():
    return torch.randint(96, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_together_equal_one(kind, ranks):
    architecture, wire = tiny(kind, **KINDS[kind]), Wire(ranks)

    def rank(index):
        shard = ThreadShard(index, ranks, wire)
        return run(Decoder(architecture, dtype="fp32", shard=shard), tokens_of())

    with ThreadPoolExecutor(ranks) as pool:
        made = list(pool.map(rank, range(ranks)))
    expected = run(Decoder(architecture, dtype="fp32"), tokens_of())
    for logits in made:
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=2e-5)


def test_ranks_hold_each_parameter_once():
    architecture = tiny("gqa", **KINDS["gqa"])
    whole = Decoder(architecture, dtype="fp32")
    halves = [Decoder(architecture, dtype="fp32", shard=shards.Shard(i, 2)) for i in range(2)]
    norms = sum(p.numel() for p in whole.parameters() if p.dim() == 1)
    held = sum(p.numel() for half in halves for p in half.parameters())
    assert held == sum(p.numel() for p in whole.parameters()) + norms  # norms are on both
    assert halves[0].new_cache(2, 16).bytes * 2 == whole.new_cache(2, 16).bytes


def test_a_model_that_ranks_cannot_share_evenly_is_refused():
    with pytest.raises(InputError, match="6 pieces, which 4 tensor-parallel ranks"):
        Decoder(tiny("mha", **EVEN), dtype="fp32", shard=shards.Shard(0, 4))


def _gloo_rank(rank, ranks, store):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    architecture = tiny("gqa", **KINDS["gqa"])
    made = run(Decoder(architecture, dtype="fp32", shard=shards.Shard(rank, ranks)), tokens_of())
    expected = run(Decoder(architecture, dtype="fp32"), tokens_of())
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=2e-5)
    torch.distributed.destroy_process_group()


def test_two_processes_over_gloo_equal_one(tmp_path, monkeypatch):
    # The children import this file by its name, whatever started pytest.
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    torch.multiprocessing.spawn(_gloo_rank, (2, str(tmp_path / "store")), nprocs=2)
