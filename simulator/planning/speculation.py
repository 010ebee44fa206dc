"""Speculative decoding: a draft proposes tokens, one pass of the model verifies them all.

A step drafts k tokens and verifies k + 1 positions. If each draft token is accepted with the chance A,
independently, a step brings (1 - A^(k+1)) / (1 - A) tokens (Leviathan et al., arXiv 2211.17192, eq. 1).
The pass reads weights and cache once for all k + 1, computes k + 1 times as much, and in a mixture of
experts touches more of them. The draft costs k steps of its own: of a small model, of the model's
next-token-prediction layers (mtp), or next to nothing where it looks tokens up in the prompt (ngram).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from roofcast.hardware.errors import InputError
from roofcast.simulator.api import Setup
from roofcast.simulator.architecture import Architecture, Layer
from roofcast.simulator.memory import rank_weight_bytes
from roofcast.simulator.models import load
from roofcast.simulator.workload import Array, Parallelism, Workload

MTP, NGRAM = "mtp", "ngram"


@dataclass(frozen=True, slots=True)
class Speculation:
    """`tokens` drafted a step, each accepted with the chance `acceptance`; by whom."""

    tokens: int
    acceptance: float
    draft: str = MTP

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise InputError(f"speculation drafts at least 1 token, not {self.tokens}")
        if not 0 <= self.acceptance <= 1:
            raise InputError(f"acceptance is a chance from 0 to 1, not {self.acceptance:g}")

    @property
    def tokens_per_step(self) -> float:
        """Tokens a step brings on average, the verified one included.

        >>> round(Speculation(3, 0.8).tokens_per_step, 3), Speculation(3, 1.0).tokens_per_step
        (2.952, 4.0)
        """
        return accepted(self.acceptance, self.tokens)


def accepted(acceptance: float, tokens: int) -> float:
    """(1 - A^(k+1)) / (1 - A), k + 1 at A = 1."""
    return sum(acceptance**power for power in range(tokens + 1))


def draft_setup(where: Setup, speculation: Speculation) -> Setup | None:
    """The draft as a set-up of its own on the same ranks; None where drafting costs nothing.

    InputError for mtp with a model that has no such layers.
    """
    if speculation.draft == NGRAM:
        return None
    if speculation.draft == MTP:
        drafter = mtp_architecture(where.architecture)
    else:
        drafter = load(speculation.draft)
    ranks = Parallelism(tensor=where.parallelism.tensor)
    return replace(where, architecture=drafter, parallelism=ranks, kv_dtype=where.kv_dtype)


def mtp_architecture(model: Architecture) -> Architecture:
    """The next-token-prediction layer with the model's embeddings and head: a model of one layer."""
    if not model.mtp:
        raise InputError(
            f"{model.name} has no next-token-prediction layers; draft with a model or ngram instead"
        )
    last = model.layers[-1]
    experts = model.mtp_experts[0] if model.mtp_experts else None
    layer = Layer(f"mtp {last.kind}", model.mtp, last.cores, experts)
    return replace(model, name=f"{model.name} mtp", layers=(layer,), mtp=(), mtp_experts=())


def step_s(where: Setup, speculation: Speculation, batch: ArrayLike, context: ArrayLike) -> Array:
    """Seconds of a step: the verifying pass, and the draft's steps before it."""
    step = where.decode(batch, context, speculation.tokens + 1).step_time_s
    drafter = draft_setup(where, speculation)
    if drafter is None:
        return step
    return np.asarray(step + speculation.tokens * drafter.decode(batch, context).step_time_s)


def draft_bytes(where: Setup, speculation: Speculation) -> float:
    """Bytes a rank holds for the draft: its weights, without what it shares with the model."""
    drafter = draft_setup(where, speculation)
    if drafter is None:
        return 0.0
    own = drafter.architecture
    if speculation.draft == MTP:
        own = replace(own, embeddings=(), head=())
    work = replace(drafter, architecture=own).costed(Workload.decode(1, 0))
    return rank_weight_bytes(work)


def break_even(plain_s: Array, step_s: Array, tokens: int) -> Array:
    """The acceptance from which speculation pays: tokens a step worth its longer step.

    Solves (1 - A^(k+1)) / (1 - A) = step / plain; NaN where not even accepting everything pays.

    >>> float(break_even(np.array(10.0), np.array(17.5), 2).round(3))  # 1 + A + A^2 = 1.75
    0.5
    """
    wanted = np.asarray(step_s / plain_s, dtype=np.float64)
    low, high = np.zeros_like(wanted), np.ones_like(wanted)
    for _ in range(50):
        middle = (low + high) / 2
        enough = sum(middle**power for power in range(tokens + 1)) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(wanted <= tokens + 1, high, np.nan)
