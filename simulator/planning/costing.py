"""What steps of a set-up take, for many set-ups: operators are counted once for all devices.

The decode step is a forecast like any other. What prompts add to it comes from the same operators at
more tokens: a pass with B decoding sequences and a prompt of x tokens has B + x rows in its products,
reads weights once, and attends for its prompt besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from roofcast.hardware.profile import Profile
from roofcast.simulator import prompt_attention
from roofcast.simulator.api import Setup
from roofcast.simulator.operators import operators
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.prediction import host_time, stage_wait
from roofcast.simulator.prompt_profile import prompt_profile
from roofcast.simulator.roofline import Roofs, operator_time
from roofcast.simulator.workload import Array, Workload

BATCHES = np.array(
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048], float
)
"""Batches at which steps are forecast, whole replicas; between them a step is nearly linear."""

_CORES = ("attention", "state")
_PER_SEQUENCE = ("lm_head", "sampler", "logits_gather")
_ONE = np.ones(())


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean tokens: cached when a token is decoded, read of a prompt, and found of it in a cache."""

    context: float
    prompt: float
    cached: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Steps of one set-up over `BATCHES`, seconds; see open_loop.ServiceCosts."""

    decode_s: Array
    first_s: Array
    further_s: float
    prompt_alone_s: float


@dataclass
class CostTable:
    """Costs set-ups that differ in device, layout and dtypes, counting and timing nothing twice.

    `offload` is the share of routed experts that are read from host memory over PCIe, not hidden behind
    anything: which ones is known only when a layer starts.
    """

    lengths: Lengths
    offload: float = 0.0
    _counted: dict[tuple[object, ...], tuple[Operator, ...]] = field(default_factory=dict)
    _timed: dict[tuple[object, ...], Array] = field(default_factory=dict)

    def of(self, where: Setup, budget: int, riding: bool) -> StepCosts:
        """What steps of one set-up take, of up to `budget` tokens; `riding` prompts share them."""
        groups = where.parallelism.data
        steps = self._decode_work(groups)
        decode = self._total(where, "decode 1", steps, where.profile)
        reading = prompt_attention.reading(prompt_profile(where.profile), where.device)
        attention = self._chunk_attention(where, reading, budget)
        chunk = min(self.lengths.prompt, float(budget)) * groups
        alone, one, two = self._bodies(where, reading, chunk, riding)
        first = one + attention
        if riding:
            own = self._total(where, "decode 1", steps, where.profile, _is_body)
            cores = self._total(where, "decode 1", steps, where.profile, _is_core)
            again = prompt_attention.mixed_factor(where.profile, where.device, where.architecture)
            first = np.maximum(first - own, attention) + (again - 1.0) * cores
        further = float(two[-1] - one[-1]) / groups + attention
        return StepCosts(decode, first, max(further, 0.0), float(alone) + attention)

    def decode(self, where: Setup, new: int = 1) -> Array:
        """Decode steps over `BATCHES` that compute `new` tokens a sequence."""
        work = self._decode_work(where.parallelism.data, new)
        return self._total(where, f"decode {new}", work, where.profile)

    def _bodies(
        self, where: Setup, reading: Profile, chunk: float, riding: bool
    ) -> tuple[Array, Array, Array]:
        """Passes without their attention: a prompt alone, and one and two of them beside decode."""
        shared = BATCHES if riding else np.zeros_like(BATCHES)
        rows = np.concatenate([[chunk], shared + chunk, shared + 2.0 * chunk])
        work = Workload(rows, np.zeros(()), _ONE)
        seconds = self._total(where, f"bodies {chunk} {riding}", work, reading, _is_body)
        one, two = np.split(seconds[1:], 2)
        return seconds[0], one, two

    def _decode_work(self, groups: int, new: int = 1) -> Workload:
        """Batches of a replica, whole sequences per attention group."""
        batches = np.ceil(BATCHES / groups) * groups
        return Workload(batches, np.array(np.floor(self.lengths.context)), np.array(float(new)))

    def _chunk_attention(self, where: Setup, reading: Profile, budget: int) -> float:
        """Seconds of attention that one pass of a prompt takes, at the mean of its passes."""
        chunk = min(self.lengths.prompt, float(budget))
        behind = self.lengths.cached + max(self.lengths.prompt - chunk, 0.0) / 2.0
        work = Workload(np.ones(1), np.array(np.floor(behind)), np.array(np.ceil(chunk)))
        return float(self._total(where, f"chunk {budget}", work, reading, _is_core)[0])

    def _total(
        self,
        where: Setup,
        name: str,
        workload: Workload,
        profile: Profile,
        wanted: Callable[[Operator], bool] | None = None,
    ) -> Array:
        """Seconds of a pass, or of some of its operators, with the host's share of a whole pass."""
        work = where.costed(workload)
        roofs = Roofs(where.device, profile)
        parts = self._operators(where, name, work)
        chosen = [part for part in parts if wanted is None or wanted(part)]
        times = [self._time(where, name, part, roofs) for part in chosen]
        device_s = np.array(np.broadcast_to(sum(times, np.zeros(())), workload.shape))
        if wanted is _is_core:
            return device_s
        launches = sum(part.launches for part in chosen)
        host = host_time(work, profile, device_s, launches)
        if wanted is not None:  # what each sequence costs the host is in the decode step
            host = host - work.sequences * profile.value("host.sequence_s", 0.0)
        return device_s + host + (stage_wait(work, chosen, times) if wanted is None else 0.0)

    def _operators(self, where: Setup, name: str, work: Pass) -> tuple[Operator, ...]:
        """Operators of a pass: those with weights by weight format, those with a cache by its dtype."""
        layout = (name, where.parallelism, work.engine, work.skew, work.activation_dtype)
        key = (*layout, id(where.architecture), where.kv_dtype)
        if key not in self._counted:
            self._counted[key] = operators(work)
        return self._counted[key]

    def _time(self, where: Setup, name: str, part: Operator, roofs: Roofs) -> Array:
        stored = where.kv_dtype if part.kind in _CORES else id(where.architecture)
        place = (where.device.id, where.profile.name, where.profile.engine, name)
        key = (*place, where.parallelism, stored, part.name, part.format)
        if key not in self._timed:
            self._timed[key] = self._timed_anew(part, roofs)
        return self._timed[key]

    def _timed_anew(self, part: Operator, roofs: Roofs) -> Array:
        if part.kind != "experts" or not self.offload:
            return operator_time(part, roofs).total_s
        near = replace(part, weight_bytes=part.weight_bytes * (1.0 - self.offload))
        far_s = part.weight_bytes * self.offload / roofs.device.pcie_bytes_per_s
        return operator_time(near, roofs).total_s + far_s


def _is_core(part: Operator) -> bool:
    return part.kind in _CORES


def _is_body(part: Operator) -> bool:
    return part.kind not in _CORES and part.name not in _PER_SEQUENCE


def stack(costs: Iterable[StepCosts], name: str) -> Array:
    """One field of many set-ups, a row each."""
    return np.stack([np.asarray(getattr(each, name)) for each in costs])
