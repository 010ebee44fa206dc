"""What steps of a set-up take, for many set-ups: operators are counted once for all devices.

The decode step is a forecast like any other. What prompts add to it follows step_time.py, which costs
the steps of the event-driven simulator: a pass with B decoding sequences and x prompt tokens. Prompts
vary in length, and neither attention nor the passes of a long one are linear in it, so that costs are
means over a log-normal distribution, by Gauss and Hermite's rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from roofcast.hardware.profile import Profile
from roofcast.simulator import prompt_attention
from roofcast.simulator.api import Setup
from roofcast.simulator.operators import operators
from roofcast.simulator.passes import Operator, Pass
from roofcast.simulator.prediction import host_time, stage_wait
from roofcast.simulator.prompt_profile import prompt_profile
from roofcast.simulator.roofline import OperatorTime, Roofs, operator_time
from roofcast.simulator.serving_costs import WEIGHED
from roofcast.simulator.workload import Array, Workload

BATCHES = np.array(
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048], float
)
"""Batches at which steps are forecast, whole replicas; between them a step is nearly linear."""

_CORES = ("attention", "state")
_PER_SEQUENCE = ("lm_head", "sampler", "logits_gather")
_ONE = np.ones(())
_NODES = 7
BODIES, PROMPTS = "bodies", "prompts"
"""Names of passes of which only what holds weights, and only what attends, is costed."""
CROWDS = np.array([2.0, 4.0, 8.0, 16.0, 32.0])
"""Prompts that one pass reads together, at which what each adds is costed."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean tokens: cached when a token is decoded, read of a prompt, and found of it in a cache.

    `variation` is the standard deviation of the tokens read over their mean, `longest` what no prompt
    exceeds.
    """

    context: float
    prompt: float
    cached: float = 0.0
    variation: float = 0.0
    longest: float = np.inf

    def prompts(self) -> tuple[Array, Array]:
        """Tokens of some prompts and their weights: sums over them are means over all prompts.

        >>> tokens, weights = Lengths(0, 1000, variation=0.5).prompts()
        >>> round(float(weights @ tokens)), round(float(np.sqrt(weights @ tokens**2 - 1e6)))
        (1000, 500)
        """
        if not self.variation:
            return np.array([self.prompt]), np.ones(1)
        points, weights = _gauss()
        sigma = np.sqrt(np.log1p(self.variation**2))
        tokens = np.exp(sigma * points - sigma**2 / 2.0)
        tokens = np.minimum(self.prompt * tokens / (weights @ tokens), self.longest)
        return np.maximum(tokens, 1.0), weights


@cache
def _gauss() -> tuple[Array, Array]:
    """Points and weights of a mean over the normal distribution."""
    points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return points, weights / weights.sum()


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Steps of one set-up over `BATCHES`, seconds, and how prompts fill passes.

    `lone_s` is what a prompt adds to the steps that read it, `among_s` (crowds, batches) what each of
    `CROWDS` that share their last pass adds beyond the first; see open_loop.ServiceCosts for the rest.
    """

    decode_s: Array
    lone_s: Array
    among_s: Array
    alone_s: float
    passes: float
    filled: float
    shared: float
    square: float


@dataclass(frozen=True, slots=True)
class _Cut:
    """Prompts cut into passes of up to `budget` tokens: full ones, and the rest in a last one."""

    tokens: Array
    weights: Array
    full: Array
    rest: Array
    budget: float

    @classmethod
    def of(cls, lengths: Lengths, budget: float) -> _Cut:
        tokens, weights = lengths.prompts()
        full = np.ceil(tokens / budget) - 1.0
        return cls(tokens, weights, full, tokens - full * budget, budget)

    def rows(self, groups: int) -> Array:
        """Tokens of the passes to cost: each rest, a full pass, a mean rest, and crowds of those."""
        mean = self.weights @ self.rest
        return np.concatenate((self.rest, np.array([self.budget, mean]), mean * CROWDS)) * groups

    def split(self, seconds: Array) -> tuple[Array, Array, Array]:
        """Seconds of those rows (rows, ...) as: each rest, a full pass, what further rests add each."""
        count = self.rest.size
        further = (seconds[count + 2 :] - seconds[count + 1]).T / (CROWDS - 1.0)
        return seconds[:count], seconds[count], further.T

    def mean(self, values: Array) -> Array:
        """The mean over prompts, the first axis."""
        return np.asarray(self.weights @ values)


@dataclass
class CostTable:
    """Costs set-ups that differ in device, layout and dtypes, counting and timing nothing twice.

    `offload` is the share of routed experts that are read from host memory over PCIe, not hidden behind
    anything: which ones is known only when a layer starts.
    """

    lengths: Lengths
    offload: float = 0.0
    _counted: dict[tuple[object, ...], tuple[Operator, ...]] = field(default_factory=dict)
    _timed: dict[tuple[object, ...], OperatorTime] = field(default_factory=dict)
    _profiles: dict[tuple[str, ...], Profile] = field(default_factory=dict)

    def of(self, where: Setup, budget: int, riding: bool) -> StepCosts:
        """What steps of one set-up take, of up to `budget` tokens; `riding` prompts share them."""
        groups = where.parallelism.data
        cut = _Cut.of(self.lengths, float(budget))
        decode = self.decode(where)
        reading = self._reading(where)
        attention = self._prompt_attention(where, reading, cut)
        rows = cut.rows(groups)
        head, shared = self._once(where)
        own = self._bodies(where, reading, f"{BODIES} {budget}", rows) + head
        added = own[:, np.newaxis] + np.zeros_like(BATCHES)
        if riding and "prefill.scale" in where.profile.parameters:
            added = added - np.minimum(shared, decode)
        elif riding:
            added = self._beside(where, reading, f"{BODIES} beside {budget}", rows)
        rest, full, more = cut.split(added)
        passes = cut.full[:, np.newaxis] * full + attention[:, np.newaxis]
        rest_own, full_own, _ = cut.split(own)
        each = cut.full * full_own + rest_own + attention
        alone = float(cut.mean(each))
        return StepCosts(
            decode_s=decode,
            lone_s=np.maximum(cut.mean(rest + passes), 0.0),
            among_s=np.maximum(more / groups + cut.mean(passes), 0.0),
            alone_s=alone,
            passes=float(cut.mean(cut.full + 1.0)),
            filled=float(cut.mean(cut.tokens)) / budget,
            shared=float(cut.mean(np.minimum(cut.tokens / budget, 1.0))),
            square=float(cut.mean(each**2)) / alone**2,
        )

    def _reading(self, where: Setup) -> Profile:
        """The profile of passes that read prompts, made once for each device's."""
        key = (where.device.id, where.profile.name, where.profile.engine)
        if key not in self._profiles:
            reading = prompt_attention.reading(prompt_profile(where.profile), where.device)
            self._profiles[key] = reading
        return self._profiles[key]

    def decode(self, where: Setup, new: int = 1) -> Array:
        """Decode steps over `BATCHES` that compute `new` tokens a sequence."""
        work = self._decode_work(where.parallelism.data, new)
        return self._total(where, f"decode {new}", work, where.profile)

    def _bodies(self, where: Setup, reading: Profile, name: str, rows: Array) -> Array:
        """Passes over so many tokens, without attention and head."""
        return self._total(where, name, Workload(rows, np.zeros(()), _ONE), reading, _is_body)

    def _beside(self, where: Setup, reading: Profile, name: str, rows: Array) -> Array:
        """(rows, batches) what rows of prompt tokens add to steps that decode, at least nothing."""
        work = self._decode_work(where.parallelism.data)
        together = self._bodies(where, reading, name, rows[:, np.newaxis] + work.batch)
        decode = self._total(where, "decode 1", work, where.profile, _is_body)
        cores = self._total(where, "decode 1", work, where.profile, _is_core)
        again = prompt_attention.mixed_factor(where.profile, where.device, where.architecture)
        return np.maximum(together - decode, 0.0) + (again - 1.0) * cores

    def _once(self, where: Setup) -> tuple[float, Array]:
        """Seconds of the head for one token, and by batch what a step with prompts pays once."""
        name, work = "decode 1", self._decode_work(where.parallelism.data)
        roofs = Roofs(where.device, where.profile)
        parts = self._operators(where, name, where.costed(work))
        timed = [(part, self._time(where, name, part, roofs)) for part in parts]
        head = sum((time.total_s for part, time in timed if _is_head(part)), np.zeros(1))
        shared = sum((_shared(part, time) for part, time in timed), np.zeros(work.shape))
        return float(np.ravel(head)[0]), shared

    def _decode_work(self, groups: int, new: int = 1) -> Workload:
        """Batches of a replica, whole sequences per attention group."""
        batches = np.ceil(BATCHES / groups) * groups
        return Workload(batches, np.array(np.floor(self.lengths.context)), np.array(float(new)))

    def _prompt_attention(self, where: Setup, reading: Profile, cut: _Cut) -> Array:
        """Seconds of attention of each prompt in one stage, in all its passes together."""
        behind = np.floor(self.lengths.cached / self.lengths.prompt * cut.tokens)
        work = Workload(np.ones(cut.tokens.shape), behind, np.ceil(cut.tokens))
        # a single sequence is one microbatch, whose operators count every stage that it goes through
        return self._total(where, PROMPTS, work, reading, _is_core) / where.parallelism.pipeline

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
        times = [self._time(where, name, part, roofs).total_s for part in chosen]
        device_s = np.array(np.broadcast_to(sum(times, np.zeros(())), workload.shape))
        if wanted is _is_core:
            return device_s
        launches = sum(part.launches for part in chosen)
        host = host_time(work, profile, device_s, launches)
        if wanted is not None:  # what each sequence costs the host is in the decode step
            host = host - work.sequences * profile.value("host.sequence_s", 0.0)
        return device_s + host + (stage_wait(work, chosen, times) if wanted is None else 0.0)

    def _operators(self, where: Setup, name: str, work: Pass) -> tuple[Operator, ...]:
        """Operators of a pass, counted once for all set-ups to which it is the same."""
        layout = (name, where.parallelism, work.engine, work.skew, work.activation_dtype)
        key = (*layout, *_stored(where, name))
        if key not in self._counted:
            self._counted[key] = operators(work)
        return self._counted[key]

    def _time(self, where: Setup, name: str, part: Operator, roofs: Roofs) -> OperatorTime:
        stored = where.kv_dtype if part.kind in _CORES else id(where.architecture)
        place = (where.device.id, where.profile.name, where.profile.engine, name)
        key = (*place, where.parallelism, stored, part.name, part.format)
        if key not in self._timed:
            self._timed[key] = self._timed_anew(part, roofs)
        return self._timed[key]

    def _timed_anew(self, part: Operator, roofs: Roofs) -> OperatorTime:
        if part.kind != "experts" or not self.offload:
            return operator_time(part, roofs)
        near = replace(part, weight_bytes=part.weight_bytes * (1.0 - self.offload))
        far_s = part.weight_bytes * self.offload / roofs.device.pcie_bytes_per_s
        time = operator_time(near, roofs)
        return replace(time, total_s=time.total_s + far_s)


def _stored(where: Setup, name: str) -> tuple[object, ...]:
    """Formats that the operators of a pass depend on: of weights, of the cache, or of both."""
    weights, cache = id(where.architecture), where.kv_dtype
    if name == PROMPTS:
        return where.architecture.name, cache
    return (weights,) if name.startswith(BODIES) else (weights, cache)


def _shared(part: Operator, time: OperatorTime) -> Array:
    """What prompts and decode share in a step, as serving_costs.shared_s counts it."""
    return time.total_s - time.link_s if part.kind in WEIGHED else time.fixed_s


def _is_core(part: Operator) -> bool:
    return part.kind in _CORES


def _is_head(part: Operator) -> bool:
    return part.name in _PER_SEQUENCE


def _is_body(part: Operator) -> bool:
    return not _is_core(part) and not _is_head(part)
