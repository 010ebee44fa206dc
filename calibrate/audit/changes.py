"""Declared changes: what ran afterwards, what a forecast says it saves, and what it can save at most.

A change saves time only in what it touches: a cache of half the bytes nothing of the weights, graphs
nothing of the bytes. The forecast's saving is what is available. The most is more generous: the touched
bytes may have moved as slowly as kernels ever do, the host may have held up all that isn't floor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from roofcast.calibrate.audit.costs import Cost
from roofcast.calibrate.audit.placing import Placed
from roofcast.calibrate.audit.ranges import credible
from roofcast.calibrate.benchmark_files.conditions import Conditions
from roofcast.hardware.errors import InputError, unknown
from roofcast.simulator.formats import element_name, find_format


@dataclass(frozen=True, slots=True)
class Side:
    """A point before or after: where it ran, what it should cost, and seconds for each token."""

    placed: Placed
    cost: Cost
    token_s: float


@dataclass(frozen=True, slots=True)
class Saving:
    """Seconds a token that a change saves by forecast (`available_s`) and at the most (`most_s`).

    None is available where that hangs on something no file says.
    """

    available_s: float | None
    most_s: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A declared change: its words, the conditions it leads to, and what it saves."""

    name: str
    words: str
    after: Callable[[Conditions], Conditions]
    saving: Callable[[Side, Side], Saving]


EXAMPLES = ("kv=fp8", "weights=int4", "tp=4", "graphs", "fused-kernel", "spec-decode=3")
_ALIAS = re.compile(r"(?P<dtype>[a-z0-9_]+)-(?P<what>kv|weights)")


def parse_change(text: str) -> Change:
    """A change as it is typed: kv=fp8 (or fp8-kv), weights=int4, tp=4, graphs, fused-kernel, ...

    UnknownNameError lists what there is.

    >>> parse_change("fp8-kv").words
    'an fp8 KV cache'
    """
    alias = _ALIAS.fullmatch(text.strip().lower())
    name, _, value = (
        (alias["what"], "=", alias["dtype"]) if alias else text.strip().lower().partition("=")
    )
    if name not in _KINDS:
        raise unknown("change", text, EXAMPLES)
    return _KINDS[name](value)


def _kv(value: str) -> Change:
    dtype = element_name(_given(value, "kv", "fp8"))
    return Change(
        f"kv={dtype}",
        f"an {dtype} KV cache",
        lambda given: replace(given, kv_dtype=dtype),
        _bytes_saved,
    )


def _weights(value: str) -> Change:
    dtype = _given(value, "weights", "int4")
    find_format(dtype)
    return Change(
        f"weights={dtype}",
        f"{dtype} weights",
        lambda given: replace(given, weight_dtype=dtype),
        _bytes_saved,
    )


def _tensor(value: str) -> Change:
    size = _count(value, "tp", 1024)
    return Change(
        f"tp={size}",
        f"TP {size}",
        lambda given: replace(given, tp=size),
        _ranks_saved,
    )


def _graphs(value: str) -> Change:
    _nothing(value, "graphs")
    return Change("graphs", "replayed graphs", lambda given: given, _host_saved)


def _fused(value: str) -> Change:
    _nothing(value, "fused-kernel")
    return Change("fused-kernel", "fused element-wise kernels", lambda given: given, _fusion_saved)


def _drafting(value: str) -> Change:
    tokens = _count(value, "spec-decode", 64)
    return Change(
        f"spec-decode={tokens}",
        f"speculative decoding of {tokens} tokens",
        lambda given: given,
        lambda before, after: _drafts_saved(before, after, tokens),
    )


_KINDS: Mapping[str, Callable[[str], Change]] = {
    "kv": _kv,
    "weights": _weights,
    "tp": _tensor,
    "graphs": _graphs,
    "fused-kernel": _fused,
    "spec-decode": _drafting,
}


def _bytes_saved(before: Side, after: Side) -> Saving:
    """The forecasts' difference; at most the bytes saved, moved as slowly as kernels ever do."""
    floor_s = before.cost.floor_s - after.cost.floor_s
    slowest = floor_s / credible("lowest_reach").most
    return Saving(before.cost.step_s - after.cost.step_s, _capped(before, after, slowest))


def _ranks_saved(before: Side, after: Side) -> Saving:
    """At most everything is divided by the ratio of the ranks."""
    ranks = [side.placed.setup.parallelism.tensor for side in (before, after)]
    return Saving(
        before.cost.step_s - after.cost.step_s, before.token_s * (1.0 - ranks[0] / ranks[1])
    )


def _host_saved(before: Side, after: Side) -> Saving:
    """All that the forecast under graphs doesn't explain; at most all that isn't floor."""
    most = before.token_s - after.cost.floor_s
    if after.placed.setup.profile.engine == "ideal":
        return Saving(None, most, "what graphs still cost isn't in the ideal profile")
    return Saving(max(before.token_s - after.cost.step_s, 0.0), most)


def _fusion_saved(before: Side, after: Side) -> Saving:
    """Element-wise kernels hidden in others; at most as slow as any, with their share of the rest.

    What the forecast doesn't explain may be dispatch, which all kernels pay alike.
    """
    hidden, kernels = _element_wise(before)
    rest = max(before.token_s - before.cost.step_s, 0.0)
    dispatch = rest * kernels / max(before.cost.launches, 1.0)
    slowest = hidden / credible("lowest_reach").most + dispatch
    return Saving(hidden, _capped(before, after, slowest))


def _element_wise(side: Side) -> tuple[float, float]:
    """Seconds and kernels of the element-wise operators of a step."""
    step = side.placed.setup.decode(round(side.cost.batch), side.cost.context)
    seconds = kernels = 0.0
    for operator, time in zip(step.operators, step.times, strict=True):
        if operator.kind == "elementwise":
            seconds += float(np.max(time.total_s))
            kernels += operator.launches
    return seconds, kernels


def _drafts_saved(before: Side, after: Side, tokens: int) -> Saving:
    """A step verifies the draft and one token more; at most all are accepted, and drafting is free."""
    where, cost = before.placed.setup, before.cost
    verified = where.decode(round(cost.batch), cost.context, tokens + 1)
    longer = float(np.max(verified.step_time_s)) / cost.step_s
    accepted = after.placed.record.value("tokens_per_step")
    most = before.token_s * (1.0 - 1.0 / (tokens + 1.0))
    if accepted is None:
        return Saving(None, most, "how many drafted tokens were accepted isn't in the file")
    return Saving(before.token_s * (1.0 - longer / accepted), most, f"{accepted:.2g} tokens a step")


def _capped(before: Side, after: Side, saving_s: float) -> float:
    """A saving that leaves no less than the floor."""
    return min(saving_s, max(before.token_s - after.cost.floor_s, 0.0))


def _given(value: str, name: str, example: str) -> str:
    if not value:
        raise InputError(f"change {name} needs a dtype: {name}={example}")
    return value


def _count(value: str, name: str, most: int) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:9]) <= most:
        raise InputError(f"change {name} needs a whole number of 1 to {most}: {name}=4")
    return int(value)


def _nothing(value: str, name: str) -> None:
    if value:
        raise InputError(f"change {name} takes no value, not {value!r}")
