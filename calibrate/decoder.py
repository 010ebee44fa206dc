"""A real Torch decoder built from an `Architecture`: what calibration measures.

One pass fills the cache with a prompt; every later step reads all weights and the cache and appends
one token. `step` lets the host count tokens and reads exactly what is stored; `step_masked` leaves
the count on the device and never changes shape, for torch.compile and CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from roofcast.calibrate import assembly, rope, runnable
from roofcast.calibrate.assembly import Placement, Reader
from roofcast.calibrate.blocks import Step
from roofcast.calibrate.kv_cache import Cache, Shape, Slots
from roofcast.calibrate.linear import can_pack
from roofcast.calibrate.shards import Shard
from roofcast.calibrate.weight_sources import RandomWeights, Source, StateDict
from roofcast.hardware.errors import CapacityError, InputError, unknown
from roofcast.simulator.architecture import Architecture, AttentionCore

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}


class Decoder(nn.Module):
    """The model of an architecture with random weights, ready to run.

    `packed` says whether a CPU's weights are packed for oneDNN; None packs where it pays. Compiled
    steps need unpacked weights. `shard` makes this the decoder of one tensor-parallel rank.
    """

    layers: nn.ModuleList
    positions: nn.Parameter | None

    def __init__(
        self,
        architecture: Architecture,
        device: str | torch.device = "cpu",
        dtype: str = "bf16",
        seed: int = 0,
        *,
        packed: bool | None = None,
        shard: Shard | None = None,
    ) -> None:
        super().__init__()
        self.numerics = runnable.check(architecture)
        self.architecture = architecture
        self.place = _placement(device, dtype, packed, shard or Shard())
        self.random = RandomWeights(seed)
        self.frequencies = self._frequencies()
        self._build(self.random, "layers")

    @property
    def device(self) -> torch.device:
        """Where weights and caches are."""
        return self.place.device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, activations and cache."""
        return self.place.dtype

    def load_state_dict_by_path(
        self, tensors: Mapping[str, Tensor], layers_at: str = "model.layers"
    ) -> None:
        """Replace all weights by a checkpoint's.

        Keys are a weight's path and `.weight` or `.bias`, inside layer i behind ``{layers_at}.{i}.``;
        matrices are [rows, columns], routed experts stacked in front.
        """
        self._build(StateDict(tensors), layers_at)

    def new_cache(self, batch: int, capacity: int) -> Cache:
        """An empty cache for `batch` sequences of up to `capacity` tokens."""
        rows = self.table_rows
        if rows is not None and capacity > rows:
            raise CapacityError(
                f"{self.architecture.name} has {rows} learned positions; "
                f"a context of {capacity} tokens is beyond them"
            )
        tables = (rope.table(turns, capacity) for turns in self.frequencies)
        return Cache(
            self.shapes,
            batch,
            capacity,
            device=self.device,
            dtype=self.dtype,
            rotations=tuple(table.to(self.device, self.dtype) for table in tables),
        )

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What each layer caches, on this rank."""
        cores = [layer.cores[0] for layer in self.architecture.layers]
        share = self.place.shard.share
        return tuple(
            Shape(share(core.kv_heads), core.key_dim, core.window)
            for core in cores
            if isinstance(core, AttentionCore)
        )

    @property
    def table_rows(self) -> int | None:
        """Positions a learned table has room for; None with rotary embedding."""
        if self.positions is None:
            return None
        return self.positions.shape[0] - self.numerics.position_offset

    def fill(self, cache: Cache, context: int) -> None:
        """Put random keys and values everywhere and say that `context` tokens are stored.

        Every page of the cache is written, so that a later step reads memory and not one zero page.
        """
        cache.rewind(context)
        for index, store in enumerate((*cache.keys, *cache.values)):
            self.random.fill(store, start=index)

    @torch.inference_mode()
    def prefill(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Fill an empty cache with prompts [batch, new]; logits [batch, vocabulary] of the last."""
        if cache.length:
            raise InputError(
                f"prefill needs an empty cache; this one holds {cache.length} tokens: rewind() it"
            )
        return self._exact(tokens, cache)[:, -1]

    @torch.inference_mode()
    def step(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Append one token to each sequence; logits [batch, vocabulary] of the next."""
        return self._exact(tokens[:, None], cache)[:, -1]

    @torch.inference_mode()
    def all_logits(self, tokens: Tensor) -> Tensor:
        """Logits [batch, new, vocabulary] after every token of some prompts."""
        batch, new = tokens.shape
        return self._exact(tokens, self.new_cache(batch, new), every=True)

    def step_masked(self, tokens: Tensor, cache: Cache, span: int) -> Tensor:
        """`step` with nothing known to the host, reading the cache's first `span` entries.

        `span` must exceed the tokens stored. Whoever replays it counts: `cache.length` stays.
        """
        logits = self(tokens[:, None], cache, cache.masked(span), every=False)
        cache.position.add_(1)
        return logits[:, -1]

    def forward(
        self, tokens: Tensor, cache: Cache, slots: tuple[Slots, ...], *, every: bool
    ) -> Tensor:
        """Logits [batch, new or 1, vocabulary] of tokens [batch, new] written into `slots`."""
        batch, new = tokens.shape
        positions = cache.position
        if new > 1:
            positions = positions + torch.arange(new, device=positions.device)
        x = self._embed(tokens, positions).view(batch * new, -1)
        step = Step(cache, slots, new, self._rotations(cache, positions))
        for layer in self.layers:
            x = layer(x, step)
        if not every:
            x = x.view(batch, new, -1)[:, -1]
        logits = self.place.shard.gather(self.head(self.norm(x)))
        return logits.view(batch, -1, logits.shape[-1])

    def _exact(self, tokens: Tensor, cache: Cache, *, every: bool = False) -> Tensor:
        batch, new = tokens.shape
        if batch != cache.batch or new < 1:
            raise InputError(
                f"tokens must be [{cache.batch}, 1 or more] for this cache, not [{batch}, {new}]"
            )
        cache.check_room(new)
        logits: Tensor = self(tokens, cache, cache.exact(new), every=every)
        cache.advance(new)
        return logits

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self._lookup(tokens)
        if self.numerics.embedding_scale != 1:
            x = x * self.numerics.embedding_scale
        if self.positions is not None:
            x = x + F.embedding(positions + self.numerics.position_offset, self.positions)
        return x

    def _lookup(self, tokens: Tensor) -> Tensor:
        """Rows of the token table; each rank adds those it holds."""
        shard = self.place.shard
        if shard.ranks == 1:
            return F.embedding(tokens, self.table)
        local = tokens - shard.rank * self.table.shape[0]
        held = (local >= 0) & (local < self.table.shape[0])
        rows = F.embedding(torch.where(held, local, 0), self.table)
        return shard.sum(rows * held[..., None])

    def _rotations(self, cache: Cache, positions: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        chosen = (table.index_select(0, positions)[:, :, None] for table in cache.rotations)
        return tuple((both[:, 0], both[:, 1]) for both in chosen)

    def _frequencies(self) -> tuple[Tensor, ...]:
        """Of the rotary embedding, and of that of windowed layers where they have their own."""
        numerics = self.numerics
        if numerics.rope_theta is None:
            return ()
        core = self.architecture.layers[0].cores[0]
        assert isinstance(core, AttentionCore)
        width = int(core.key_dim * numerics.rope_fraction)
        scaling = dict(numerics.rope_scaling)
        made = rope.inverse_frequencies(numerics.rope_theta, width, scaling)
        if numerics.local_rope_theta is None:
            return (made,)
        return made, rope.inverse_frequencies(numerics.local_rope_theta, width, {})

    @torch.no_grad()
    def _build(self, source: Source, layers_at: str) -> None:
        """All modules from one source; the layers built before go first, to save memory."""
        self.layers = nn.ModuleList()
        architecture, depth = self.architecture, len(self.architecture.layers)

        def reader(at: str) -> Reader:
            return Reader(source, self.place, at, depth)

        outer, (words, *learned) = reader(""), architecture.embeddings
        self.table = nn.Parameter(outer.matrix(words), requires_grad=False)
        self.positions = None
        if learned:
            whole = outer.matrix(learned[0], whole=True)
            self.positions = nn.Parameter(whole, requires_grad=False)
        self.layers = nn.ModuleList(
            assembly.layer(reader(f"{layers_at}.{index}"), index, layer, self.numerics)
            for index, layer in enumerate(architecture.layers)
        )
        final = assembly.by_op(architecture.head, "norm")
        self.norm = assembly.norm(outer, final[0], self.numerics) if final else nn.Identity()
        self.head = assembly.head(outer, architecture.head, self.table)


def _placement(
    device: str | torch.device, dtype: str, packed: bool | None, shard: Shard
) -> Placement:
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"unknown torch device {str(device)!r}, e.g. cpu or cuda") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but torch sees no CUDA device")
    if packed and place.type != "cpu":
        raise InputError(f"only a CPU's weights can be packed, not those of {place}")
    chosen = DTYPES[dtype]
    pack = can_pack(place, chosen) if packed is None else packed
    return Placement(place, chosen, pack, shard)
