"""Devices and layouts side by side: sweeps, trade-offs, and where one overtakes another.

Everything is per device of a replica where it says so, since layouts have different numbers of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.errors import CapacityError, InputError
from roofcast.hardware.links import node_devices
from roofcast.simulator.api import Setup
from roofcast.simulator.insight import largest_batch, largest_context
from roofcast.simulator.layouts import refusal
from roofcast.simulator.planning.prices import Power, Price, watts
from roofcast.simulator.prediction import Forecast
from roofcast.simulator.workload import Array, Parallelism

_PER_OCTAVE = 4
_MOST = 4096
_SHORTEST = 128


@dataclass(frozen=True)
class Contender:
    """One device with the smallest layout that holds the model, and what it costs."""

    where: Setup
    price: Price | None
    largest_batch: int
    longest_context: int

    @property
    def devices(self) -> int:
        """Devices of a replica."""
        return self.where.parallelism.devices

    def usd_per_million_tokens(self, forecast: Forecast, power: Power) -> Array | None:
        """Cost of a million output tokens of pure decode, at every point of a forecast."""
        if self.price is None:
            return None
        hourly = self.price.usd_per_hour(self.where.device, power)
        return hourly / (forecast.tokens_per_s_per_device * 3600.0) * 1e6

    def joules_per_token(self, forecast: Forecast, power: Power) -> Array | None:
        """Energy of an output token at every point of a forecast; None without a design power."""
        if self.where.device.tdp_w is None:
            return None
        return watts(self.where.device, power) / forecast.tokens_per_s_per_device


def contender(where: Setup, context: int, price: Price | None, tensor: int | None) -> Contender:
    """A device at a layout, the smallest one that holds a sequence where `tensor` is None."""
    ranks = tensor or _smallest(where, context)
    spread = replace(where, parallelism=Parallelism(tensor=ranks))
    at = spread.decode(1, context)
    most = int(np.min(largest_batch(at)))
    if most < 1:
        raise CapacityError(
            f"{where.architecture.name} with one sequence of {context:,} tokens does not fit on "
            f"{ranks} x {where.device.id}"
        )
    return Contender(spread, price, most, int(np.min(largest_context(at))))


def _smallest(where: Setup, context: int) -> int:
    for ranks in tensor_sizes(where):
        spread = replace(where, parallelism=Parallelism(tensor=ranks))
        if np.all(spread.decode(1, context).memory.fits):
            return ranks
    raise CapacityError(
        f"{where.architecture.name} with one sequence of {context:,} tokens does not fit on one node "
        f"of {where.device.id}"
    )


def tensor_sizes(where: Setup) -> list[int]:
    """Powers of two that engines accept and one node holds."""
    sizes = [2**power for power in range(int(math.log2(node_devices(where.device))) + 1)]
    return [n for n in sizes if not refusal(where.architecture, Parallelism(tensor=n))]


def batches_up_to(limit: int) -> Array:
    """Batches from 1 to a limit, four to a doubling, the limit among them."""
    top = max(min(limit, _MOST), 1)
    steps = np.arange(int(_PER_OCTAVE * math.log2(top)) + 1)
    sizes = np.unique(np.round(2.0 ** (steps / _PER_OCTAVE)))
    return np.unique(np.append(sizes, float(top)))


# Trade-offs


@dataclass(frozen=True)
class Tradeoff:
    """Speed a user sees against speed a device gives: the best layouts and batches of one device.

    Entries run from the fastest for a user to the most a device gives.
    """

    name: str
    per_user: Array
    per_device: Array
    tensor: NDArray[np.int64]
    batch: NDArray[np.int64]


def tradeoff(where: Setup, context: int, tensors: Sequence[int]) -> Tradeoff:
    """The Pareto front over tensor sizes that hold the model and batches that fit."""
    users, gives, ranks, sizes = [], [], [], []
    for tensor in tensors:
        spread = replace(where, parallelism=Parallelism(tensor=tensor))
        most = int(np.min(largest_batch(spread.decode(1, context))))
        if most < 1:
            continue
        batches = batches_up_to(most)
        swept = spread.decode(batches, context)
        users.append(swept.tokens_per_s_per_user)
        gives.append(swept.tokens_per_s_per_device)
        ranks.append(np.full(batches.size, tensor))
        sizes.append(batches)
    if not users:
        raise CapacityError(
            f"{where.architecture.name} at context {context:,} fits on none of "
            f"{', '.join(f'TP {n}' for n in tensors)} of {where.device.id}"
        )
    user, gives_ = np.concatenate(users), np.concatenate(gives)
    front = pareto(user, gives_)
    return Tradeoff(
        where.device.id,
        user[front],
        gives_[front],
        np.concatenate(ranks)[front].astype(np.int64),
        np.concatenate(sizes)[front].astype(np.int64),
    )


def pareto(one: Array, other: Array) -> NDArray[np.int64]:
    """Indices of the points that no point beats in both, from the largest `one` down.

    >>> pareto(np.array([3.0, 2.0, 1.0, 2.5]), np.array([1.0, 2.0, 3.0, 0.5])).tolist()
    [0, 1, 2]
    """
    order = np.lexsort((-other, -one))
    best = np.maximum.accumulate(other[order])
    ahead = np.concatenate(([True], other[order][1:] > best[:-1]))
    return np.asarray(order[ahead], dtype=np.int64)


# Overtaking


@dataclass(frozen=True)
class Overtaking:
    """Where two devices change places along an axis; none where one leads all the way."""

    leader: str
    follower: str
    at: tuple[float, ...]


def overtaking(names: tuple[str, str], x: Array, one: Array, other: Array) -> Overtaking:
    """Where the ratio of two positive curves (higher is better) crosses 1, on a logarithmic axis.

    The leader is the one ahead at the left end.
    """
    ahead = np.log(one / other)
    crossed = np.flatnonzero(np.sign(ahead[:-1]) * np.sign(ahead[1:]) < 0)
    at = []
    for index in crossed:
        part = ahead[index] / (ahead[index] - ahead[index + 1])
        at.append(float(x[index] * (x[index + 1] / x[index]) ** part))
    first, second = names if ahead[np.flatnonzero(ahead)[:1]].sum() >= 0 else names[::-1]
    return Overtaking(first, second, tuple(at))


def contexts_up_to(limit: int) -> Array:
    """Contexts from `_SHORTEST` to a limit, doubling."""
    top = max(limit, _SHORTEST)
    steps = np.arange(int(math.log2(top / _SHORTEST)) + 1)
    return np.asarray(np.unique(np.append(_SHORTEST * 2.0**steps, float(top))))


# Tensor parallelism


@dataclass(frozen=True)
class TensorCurve:
    """What more tensor ranks bring, with one user and with as many as fit; entries by ranks.

    `saturated` takes for every size the largest batch that fits, up to a bound that all share.
    """

    ranks: NDArray[np.int64]
    single_s: Array
    single_links: Array
    saturated_batch: NDArray[np.int64]
    saturated_per_device: Array
    saturated_links: Array

    @property
    def speedup(self) -> Array:
        """How much faster one user is served than with the smallest size."""
        return np.asarray(self.single_s[0] / self.single_s)

    @property
    def best_for_one_user(self) -> int:
        """The size with the shortest step for one user."""
        return int(self.ranks[np.argmin(self.single_s)])


def tensor_curve(where: Setup, context: int, sizes: Sequence[int], most: int = 512) -> TensorCurve:
    """The curve over sizes; InputError where the model fits on none of them."""
    rows = []
    for ranks in sizes:
        spread = replace(where, parallelism=Parallelism(tensor=ranks))
        single = spread.decode(1, context)
        fits = int(np.min(largest_batch(single)))
        if fits < 1:
            continue
        batch = min(fits, most)
        full = spread.decode(batch, context)
        rows.append(
            (
                ranks,
                float(single.step_time_s),
                _link_share(single),
                batch,
                float(full.tokens_per_s_per_device),
                _link_share(full),
            )
        )
    if not rows:
        raise InputError(
            f"{where.architecture.name} at context {context:,} fits on none of "
            f"{', '.join(f'TP {n}' for n in sizes)} of {where.device.id}"
        )
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return TensorCurve(*columns)


def _link_share(forecast: Forecast) -> float:
    """Share of a step that collectives take, their latency included."""
    pairs = zip(forecast.operators, forecast.times, strict=True)
    spent = sum(float(time.total_s) for part, time in pairs if part.kind == "collective")
    return spent / float(forecast.step_time_s)
