"""The forecast: model x workload x device x profile -> step time, throughput, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.profile import Profile
from roofcast.simulator.memory import Memory, memory
from roofcast.simulator.operators import operators
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.roofline import OperatorTime, Roofs, operator_time
from roofcast.simulator.stages import layer_counts
from roofcast.simulator.workload import Array

if TYPE_CHECKING:
    import pandas
    import xarray

CAUSES = ("weights", "kv_cache", "activations", "compute", "interconnect", "overhead")
_ENDS = {"embedding": "first", "lm_head": "last", "sampler": "last", "logits_gather": "last"}
BOUNDS = ("memory", "compute", "interconnect", "overhead")


@dataclass(frozen=True)
class Forecast:
    """What a pass costs on a device. Arrays broadcast over the points; see `Workload`.

    Times are seconds; bytes and FLOPs are of the whole replica; `operators` are of one rank.
    `bubble_s` is what microbatches wait for the slowest pipeline stage.
    """

    work: Pass
    device: Accelerator
    profile: Profile
    operators: tuple[Operator, ...]
    times: tuple[OperatorTime, ...]
    host_s: Array
    step_time_s: Array
    bubble_s: Array = field(default_factory=lambda: np.zeros(()), repr=False)

    @cached_property
    def memory(self) -> Memory:
        """The ledger of the fullest device, with the cache of every sequence after the pass."""
        return memory(self.work, self.device)

    @cached_property
    def floor_s(self) -> Array:
        """No engine beats this: all bytes at full bandwidth, or all FLOPs at peak if that is longer."""
        parts = self.operators
        if self.work.kernels.reads_again:  # another engine's kernel needn't
            parts = operators(replace(self.work, engine="ideal"))
        return _floor(self.work, self.device, self.profile, parts)

    @property
    def batch(self) -> Array:
        """Sequences decoded together, per replica."""
        return self.work.workload.batch

    @property
    def context(self) -> Array:
        """Tokens cached per sequence when the step starts."""
        return self.work.workload.context

    @property
    def devices(self) -> int:
        """Devices of the replica."""
        return self.work.parallelism.devices

    @property
    def step_time_low_s(self) -> Array:
        """Lower end of the 80 % interval; NaN where the profile has no measured band."""
        return self._banded("low")

    @property
    def step_time_high_s(self) -> Array:
        """Upper end of the 80 % interval; NaN where the profile has no measured band."""
        return self._banded("high")

    def _banded(self, end: str) -> Array:
        if self.profile.band is None:
            exact = self.profile.engine == "ideal"
            return self.step_time_s if exact else np.full_like(self.step_time_s, np.nan)
        factor = np.exp(getattr(self.profile.band, end))
        widened = np.where(self.extrapolates, factor**2, factor)
        return np.maximum(self.step_time_s * widened, self.floor_s)

    @property
    def tokens_per_s_per_user(self) -> Array:
        """Output tokens per second that one sequence sees."""
        return self.work.workload.new / self.step_time_s

    @property
    def tokens_per_s(self) -> Array:
        """Output tokens per second of the replica."""
        return self.batch * self.tokens_per_s_per_user

    @property
    def tokens_per_s_per_device(self) -> Array:
        """Output tokens per second and device."""
        return self.tokens_per_s / self.devices

    @property
    def ranks(self) -> Array:
        """Rank passes in one step: devices of a stage times microbatches."""
        parallelism = self.work.parallelism
        return self.work.microbatches * (parallelism.tensor * parallelism.data)

    def _total(self, name: str) -> Array:
        rank = sum((getattr(operator, name) for operator in self.operators), np.zeros(()))
        return np.asarray(rank * self.ranks)

    @cached_property
    def flops(self) -> Array:
        """Matrix FLOPs of the replica."""
        return self._total("flops")

    @cached_property
    def weight_bytes(self) -> Array:
        """Weight bytes the replica reads."""
        return self._total("weight_bytes")

    @cached_property
    def kv_read_bytes(self) -> Array:
        """Cache and state bytes the replica reads."""
        return self._total("kv_read_bytes")

    @cached_property
    def kv_write_bytes(self) -> Array:
        """Cache and state bytes the replica writes."""
        return self._total("kv_write_bytes")

    @cached_property
    def hbm_bytes(self) -> Array:
        """All HBM bytes of the replica, activations included."""
        rest = self._total("activation_bytes")
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes + rest

    @property
    def arithmetic_intensity(self) -> Array:
        """FLOP per HBM byte."""
        return self.flops / self.hbm_bytes

    @property
    def mbu(self) -> Array:
        """Achieved over peak memory bandwidth."""
        peak = Roofs(self.device, self.profile).bandwidth_bytes_per_s * self.devices
        return self.hbm_bytes / (self.step_time_s * peak)

    @property
    def mfu(self) -> Array:
        """Achieved over peak FLOP/s, each operator against the peak of its own dtype."""
        roofs = Roofs(self.device, self.profile)
        busy = np.zeros(())
        for operator in self.operators:
            if np.any(operator.flops):
                busy = busy + operator.flops / roofs.peak(operator.dtype)[1]
        return busy * self.ranks / (self.step_time_s * self.devices)

    @cached_property
    def causes(self) -> dict[str, Array]:
        """Seconds of the step by cause; the values sum to the step time.

        An operator on its memory roof is split by the bytes it moves; one on its compute roof counts
        as compute; fixed costs, the host and waiting for the slowest stage are overhead.
        """
        totals = dict.fromkeys(CAUSES, np.zeros(()))
        totals["overhead"] = self.host_s + self.bubble_s
        for operator, time in zip(self.operators, self.times, strict=True):
            totals["overhead"] = totals["overhead"] + time.fixed_s
            totals["interconnect"] = totals["interconnect"] + time.link_s
            roof = time.total_s - time.fixed_s - time.link_s
            on_memory = time.memory_s >= time.compute_s
            totals["compute"] = totals["compute"] + np.where(on_memory, 0.0, roof)
            moved = np.where(on_memory, roof, 0.0) / np.maximum(operator.bytes, 1.0)
            cache = operator.kv_read_bytes + operator.kv_write_bytes
            totals["weights"] = totals["weights"] + moved * operator.weight_bytes
            totals["kv_cache"] = totals["kv_cache"] + moved * cache
            totals["activations"] = totals["activations"] + moved * operator.activation_bytes
        return totals

    @property
    def bound(self) -> NDArray[np.str_]:
        """The largest cause of the step time, per point: one of BOUNDS."""
        causes = self.causes
        memory_s = causes["weights"] + causes["kv_cache"] + causes["activations"]
        groups = (memory_s, *(causes[name] for name in BOUNDS[1:]))
        stacked = np.stack(np.broadcast_arrays(*groups, self.step_time_s)[:-1])
        return np.asarray(BOUNDS)[np.argmax(stacked, axis=0)]

    @property
    def extrapolates(self) -> NDArray[np.bool_]:
        """Where the point lies outside what the profile was measured on."""
        outside = np.zeros(self.step_time_s.shape, dtype=bool)
        known = {"batch": self.batch, "context": self.context}
        for name, (low, high) in self.profile.valid_range.items():
            if name in known:
                outside = outside | (known[name] < low) | (known[name] > high)
        return outside

    def to_xarray(self) -> xarray.Dataset:
        """The points as a labelled dataset, over batch and context where they form a grid."""
        from roofcast.simulator.tables import to_xarray

        return to_xarray(self)

    def __str__(self) -> str:
        """The points as an aligned table."""
        from roofcast.simulator.tables import to_text

        return to_text(self)

    def _repr_html_(self) -> str:
        """The points as a notebook shows them."""
        from roofcast.simulator.tables import to_html

        return to_html(self)

    @property
    def plot(self) -> Any:
        """Figures of this forecast: `.plot.roofline()`, `.plot.throughput()`, ...

        They are a plugin's, as pandas' plotting backends are: whatever package is installed with an
        entry point in the group `roofcast.plots`; Roofcast's own is `roofcast.reports.plotting`.
        """
        from roofcast.simulator.plots import plots

        return plots()(self)

    def to_dataframe(self) -> pandas.DataFrame:
        """The points as rows, with the columns of `roofcast predict`."""
        from roofcast.simulator.tables import to_dataframe

        return to_dataframe(self)


def forecast_pass(work: Pass, device: Accelerator, profile: Profile) -> Forecast:
    """Forecast one pass: operators, their times, what the host adds, and the memory it needs."""
    parts = operators(work)
    roofs = Roofs(device, profile)
    times = tuple(operator_time(operator, roofs) for operator in parts)
    device_s = _sum(time.total_s for time in times)
    launches = sum(operator.launches for operator in parts)
    host = host_time(work, profile, device_s, launches)
    bubble = stage_wait(work, parts, [time.total_s for time in times])
    step = np.broadcast_to(device_s + host + bubble, work.workload.shape)
    return Forecast(
        work=work,
        device=device,
        profile=profile,
        operators=parts,
        times=times,
        host_s=host,
        step_time_s=np.array(step),
        bubble_s=bubble,
    )


def stage_wait(work: Pass, parts: Iterable[Operator], seconds: Iterable[Array]) -> Array:
    """Seconds a step lasts beyond its own passage through the stages, because one of them is slower.

    m microbatches go round: each stage serves all of them in a step, so that it lasts at least
    m x (slowest stage), and at least the way of one microbatch through all stages. A stage takes its
    number of layers times the mean layer; the first one also embeds, the last one has the head.
    """
    if work.parallelism.pipeline == 1:
        return np.zeros(())
    spent: dict[str, Array] = {"first": np.zeros(()), "last": np.zeros(()), "": np.zeros(())}
    sent = np.zeros(())
    for part, time_s in zip(parts, seconds, strict=True):
        if part.name == "send":
            sent = time_s
        else:
            where = _ENDS.get(part.name, "")
            spent[where] = spent[where] + time_s
    layers = len(work.architecture.layers)
    counts = layer_counts(layers, work.parallelism.pipeline)
    stage = [spent[""] * (count / layers) for count in counts]
    stage[0] = stage[0] + spent["first"]
    stage[-1] = stage[-1] + spent["last"]
    slowest = np.max(np.broadcast_arrays(*stage), axis=0)
    passage = spent[""] + spent["first"] + spent["last"] + sent
    return np.asarray(np.maximum(work.microbatches * slowest - passage, 0.0))


def host_time(work: Pass, profile: Profile, device_s: Array, launches: float) -> Array:
    """Seconds no kernel shows: a step, its layers, its sequences, and waiting for the dispatch.

    A device that is done with its `launches` kernels before the host could issue them waits.
    """
    layers = len(work.architecture.layers)
    fixed = profile.value("host.step_s", 0.0) + layers * profile.value("host.layer_s", 0.0)
    waiting = np.maximum(launches * profile.value("host.kernel_s", 0.0) - device_s, 0.0)
    return waiting + fixed + work.sequences * profile.value("host.sequence_s", 0.0)


def _floor(work: Pass, device: Accelerator, profile: Profile, parts: tuple[Operator, ...]) -> Array:
    roofs = Roofs(device, Profile("floor", device.id, "ideal", "", roofs=profile.roofs))
    memory_s, compute_s = np.zeros(()), np.zeros(())
    for operator in parts:
        required = operator.bytes - operator.activation_bytes
        memory_s = memory_s + required / roofs.bandwidth_bytes_per_s
        if np.any(operator.flops):
            compute_s = compute_s + operator.flops / roofs.peak(operator.dtype)[1]
    return np.array(np.broadcast_to(np.maximum(memory_s, compute_s), work.workload.shape))


def _sum(arrays: Iterable[Array]) -> Array:
    return sum(arrays, np.zeros(()))
