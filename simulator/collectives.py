"""What ranks exchange in a pass: operators of kind `collective`, one rank's bytes in one direction.

A sum over n ranks moves 2 (n - 1) / n of the message in a ring, a gather or a scattered sum (n - 1) / n
of the whole. Behind routed experts under attention-data-parallelism tokens travel to the ranks that
hold their experts and back: point to point, or by gathering all tokens everywhere, as the engine does.
"""

from __future__ import annotations

from collections.abc import Iterable

from roofcast.simulator.architecture import Experts
from roofcast.simulator.formats import element_bytes
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.workload import Array


def all_reduce(work: Pass, message: Array | None = None) -> Iterable[Operator]:
    """Sum over the tensor ranks of the hidden vectors of all tokens, or of a `message` in bytes."""
    ranks = work.parallelism.tensor
    if ranks > 1:
        moved = hidden_bytes(work, work.tokens) if message is None else message
        yield _collective(
            work, "all_reduce", moved * (2.0 * (ranks - 1) / ranks), 2.0 * moved, ranks
        )


def gather_logits(work: Pass) -> Iterable[Operator]:
    """Every tensor rank holds a part of the vocabulary; the sampler wants all of it."""
    ranks = work.parallelism.tensor
    if ranks > 1:
        element = element_bytes(work.activation_dtype)
        logits = work.sequences * (work.architecture.vocab_size * element)
        yield _collective(work, "logits_gather", logits * ((ranks - 1) / ranks), logits, ranks)


def send_stages(work: Pass) -> Iterable[Operator]:
    """Hidden vectors handed from each pipeline stage to the next."""
    stages = work.parallelism.pipeline
    if stages > 1:
        message = hidden_bytes(work, work.tokens / work.parallelism.tensor)
        one = _collective(work, "send", message, 2.0 * message, work.parallelism.devices)
        yield one.times(stages - 1)


def exchange_experts(work: Pass, experts: Experts) -> Iterable[Operator]:
    """What routed experts need: a sum where all ranks hold all tokens, else dispatch and combine.

    Without attention groups every tensor rank holds every token, computes what its experts or its
    slices of them add, and one sum ends the layer.
    """
    ranks = work.parallelism
    if ranks.data == 1:
        yield from all_reduce(work)
    elif work.kernels.exchange == "all_to_all" and ranks.expert > 1:
        yield from _all_to_all(work, experts)
    else:
        yield from _gathered(work)


def ranks_reached(ranks: int, active: float) -> float:
    """Other ranks that hold an expert of a token: n (1 - (1 - 1/n)^k) (n - 1) / n, uniform routing.

    >>> round(ranks_reached(8, 8), 3), ranks_reached(1, 8)
    (4.595, 0.0)
    """
    return ranks * (1.0 - (1.0 - 1.0 / ranks) ** active) * (ranks - 1) / ranks if ranks > 1 else 0.0


def hidden_bytes(work: Pass, tokens: Array) -> Array:
    """Bytes of the hidden vectors of so many tokens."""
    return tokens * (work.architecture.hidden_size * element_bytes(work.activation_dtype))


def _all_to_all(work: Pass, experts: Experts) -> Iterable[Operator]:
    """Each token once to every rank it needs and back; tensor ranks share the sending.

    An expert that several ranks split wants the token on each of them.
    """
    ranks = work.parallelism
    copies = ranks_reached(ranks.expert, experts.active) * ranks.expert_tensor
    message = hidden_bytes(work, work.tokens / ranks.tensor) * copies
    for name in ("dispatch", "combine"):
        yield _collective(work, name, message, 2.0 * message, ranks.tensor * ranks.data)
    if ranks.tensor > 1:
        own = hidden_bytes(work, work.tokens)
        moved = own * ((ranks.tensor - 1) / ranks.tensor)
        yield _collective(work, "all_gather", moved, 2.0 * own, ranks.tensor)


def _gathered(work: Pass) -> Iterable[Operator]:
    """All tokens gathered over the attention groups, and their sums scattered back."""
    ranks = work.parallelism
    everything = hidden_bytes(work, work.tokens * ranks.data)
    moved = everything * ((ranks.data - 1) / ranks.data)
    for name in ("all_gather", "reduce_scatter"):
        yield _collective(work, name, moved, everything, ranks.tensor * ranks.data)
    yield from all_reduce(work)


def _collective(
    work: Pass, name: str, link_bytes: Array, activation_bytes: Array, peers: int
) -> Operator:
    return Operator(
        name=name,
        kind="collective",
        dtype=work.activation_dtype,
        format=work.activation_dtype,
        launches=1.0,
        link_bytes=link_bytes,
        activation_bytes=activation_bytes,
        peers=peers,
    )
