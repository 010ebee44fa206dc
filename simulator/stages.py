"""Pipeline stages: which layers each holds, and the part of a model that one stage sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise

from roofcast.hardware.errors import InputError
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.passes import Pass


def layer_counts(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage: as even as can be; what is left over goes to those before the last.

    The last stage also has the head, the first the embeddings. Source: get_pp_indices of
    vllm/distributed/utils.py (Apache-2.0). InputError where there are more stages than layers.

    >>> layer_counts(32, 4), layer_counts(30, 4), layer_counts(61, 8)
    ((8, 8, 8, 8), (7, 8, 8, 7), (7, 7, 8, 8, 8, 8, 8, 7))
    """
    if stages > layers:
        raise InputError(f"{stages} pipeline stages are more than the {layers} layers of the model")
    base, left = divmod(layers, stages)
    counts = [base] * stages
    for index in range(2, left + 2):
        counts[-index] += 1
    return tuple(counts)


def stages(work: Pass) -> Iterator[Pass]:
    """The pass as each stage sees it: its layers, embeddings in the first, head in the last."""
    whole, count = work.architecture, work.parallelism.pipeline
    if count == 1:
        yield work
        return
    ends = accumulate(layer_counts(len(whole.layers), count), initial=0)
    for index, (start, end) in enumerate(pairwise(ends)):
        last = index == count - 1
        part = _part(whole, start, end, index == 0, last)
        yield replace(work, architecture=part, sampled=work.sampled and last)


def _part(whole: Architecture, start: int, end: int, first: bool, last: bool) -> Architecture:
    """Some layers of a model. A tied head is held where it is read, also apart from the embeddings."""
    head = whole.head if last else ()
    if last and not first:
        head = tuple(replace(weight, resident=True) for weight in head)
    return replace(
        whole,
        layers=whole.layers[start:end],
        embeddings=whole.embeddings if first else (),
        head=head,
    )
