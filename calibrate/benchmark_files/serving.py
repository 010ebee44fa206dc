"""What readers of served runs share: the batch, and what chunks and acceptance say about a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from roofcast.calibrate.benchmark_files import derive
from roofcast.calibrate.benchmark_files.record import Quantity, Record

MS: Final = 1e-3
_LONGER: Final = 1.15  # ITL over TPOT from which chunks must hold several tokens


def served(record: Record, *, rate: Quantity | None, achieved: Quantity | None = None) -> Record:
    """The record of a served run with its batch: as measured, else by Little's law, else as asked.

    `rate` is requests/s; speculative decoding adds the time of a step.
    """
    by_law = derive.in_flight(rate, record.e2e_s)
    flags = record.flags
    if achieved is not None:
        found = replace(record, batch=achieved, batch_kind="achieved")
    elif by_law is not None:
        found = replace(record, batch=by_law, batch_kind="littles_law")
    else:
        found = replace(record, batch=record.requested, batch_kind="requested")
        flags = (*flags, *(["batch_only_requested"] if record.requested else []))
    if record.samples is None and record.tpot_s is None and record.output_tokens_per_s is None:
        flags = (*flags, "no_requests")
    accepted = record.tokens_per_step
    several = accepted if accepted is not None and accepted.value > 1.0 else None
    step = derive.step(record.tpot_s, several)
    return replace(found, flags=flags, tokens_per_step=several, step_s=step)


def chunked(
    tpot: Quantity | None, itl: Quantity | None, accepted: Quantity | None
) -> Iterable[str]:
    """Flags of a run whose steps or chunks yield more than one token."""
    if accepted is not None and accepted.value > 1.0:
        yield "spec_decode"
    elif tpot is not None and itl is not None and itl.value > _LONGER * tpot.value:
        yield "multi_token_chunks"
