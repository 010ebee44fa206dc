"""A reply, token by token: prefill, then one step and one draw for each new token."""

from __future__ import annotations

import torch
from torch import Tensor

from roofcast.calibrate.decoder import Decoder
from roofcast.calibrate.sampling import Sampler, greedy
from roofcast.hardware.errors import InputError


def generate(
    decoder: Decoder,
    prompt: Tensor,
    new_tokens: int,
    sampler: Sampler = greedy,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The replies [batch, new_tokens] to prompts [batch, length].

    The first token comes out of the prefill; each further one costs a step.
    """
    if new_tokens < 1:
        raise InputError(f"new_tokens must be at least 1, not {new_tokens}")
    batch, length = prompt.shape
    cache = decoder.new_cache(batch, length + new_tokens - 1)
    replies = [sampler(decoder.prefill(prompt, cache), generator)]
    for _ in range(new_tokens - 1):
        replies.append(sampler(decoder.step(replies[-1], cache), generator))
    return torch.stack(replies, dim=1)
