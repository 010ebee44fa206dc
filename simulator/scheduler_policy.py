"""The limits that a scheduler keeps to, as an engine is launched with them."""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.simulator.requests import Requests


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of the scheduler: tokens a step, sequences at once, cache size in tokens and its pages.

    `prompts_first`: prompts are read in steps of their own, before decoding goes on (SGLang). Not
    `chunked`: so are they, and each one whole. `ahead`:
    a step is decided while the one before it runs. `whole_prompt_fits`: a prompt is begun only when
    all of it has room. `keeps_blocks`: a preempted sequence finds what is left of its blocks. A request
    reaches the scheduler `request_s` after its arrival, as one with a mean prompt does.
    """

    kv_tokens: int
    token_budget: int = 2048
    max_sequences: int = 256
    block_tokens: int = 16
    prompts_first: bool = False
    chunked: bool = True
    ahead: bool = True
    whole_prompt_fits: bool = True
    keeps_blocks: bool = True
    request_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_sequences", "block_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.token_budget < self.max_sequences:
            raise InputError(
                f"token_budget ({self.token_budget}) must be at least max_sequences "
                f"({self.max_sequences}): every decoding sequence takes one token of it"
            )

    @property
    def apart(self) -> bool:
        """Whether a step either reads prompts or decodes."""
        return self.prompts_first or not self.chunked

    @property
    def blocks(self) -> int:
        """Blocks the cache holds."""
        return self.kv_tokens // self.block_tokens

    def check(self, requests: Requests) -> None:
        """Raise CapacityError or InputError for a request that could never be served."""
        total = requests.input_tokens + requests.output_tokens
        if (longest := int(total.max())) > self.blocks * self.block_tokens:
            raise CapacityError(
                f"request {int(total.argmax())} of {longest:,} tokens can never fit in a cache of "
                f"{self.blocks * self.block_tokens:,}"
            )
        longest = int(requests.input_tokens.max())
        if not self.chunked and longest > self.token_budget:
            raise InputError(
                f"a prompt of {longest:,} tokens exceeds the token budget of "
                f"{self.token_budget:,}, and prompts are not chunked"
            )
