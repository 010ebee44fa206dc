"""What if: each hypothesis says how long a step should take if the run wasn't what its label says.

A hypothesis is judged on all points of a run (same file, same set-up): one that holds explains all of
them. Times under another format, device or number of devices are scaled from the parts of the forecast.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from roofcast.calibrate.audit.evidence import Evidence, Suspect, parts_total
from roofcast.calibrate.audit.measured import milliseconds
from roofcast.calibrate.audit.ranges import credible
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import all_accelerators
from roofcast.hardware.profile import ideal
from roofcast.simulator.api import Setup
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.formats import element_bytes, find_format
from roofcast.simulator.roofline import Roofs

_MEMORY = ("weights", "kv_cache", "activations")
_STORED = {"bf16": 16.0, "fp8": 8.0, "int4": 4.5}
_CACHED = ("bf16", "fp8")
_SIZES = (1, 2, 4, 8, 16)
_DIFFERENT = 1.25
_DOUBTFUL = 0.6  # a point that is only faster than forecast may be right, and the forecast wrong


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A cause, how credible it is beforehand (0 to 1), what it says, and the step it predicts."""

    cause: str
    prior: float
    words: str
    expected_s: Callable[[Evidence], float]


def explained(point: Evidence, run: Sequence[Evidence]) -> Iterable[Suspect]:
    """The hypotheses that bring a point within its interval, by how much of the run's gap they take."""
    for hypothesis in hypotheses(point, run):
        expected = hypothesis.expected_s(point)
        if expected <= 0 or not point.explains(expected) or not _closes(point, expected):
            continue
        credit = 1.0 if point.found or point.slow or point.below_floor else _DOUBTFUL
        share = hypothesis.prior * _share(hypothesis, run) * credit
        if share > 0:
            yield Suspect(hypothesis.cause, share, _sentence(hypothesis, expected, point, run))


def _closes(point: Evidence, expected_s: float) -> bool:
    """Whether at least half of the point's own gap is closed."""
    left = abs(math.log(point.measured_s / expected_s))
    return left <= 0.5 * abs(math.log(point.ratio))


def _share(hypothesis: Hypothesis, run: Sequence[Evidence]) -> float:
    """Part of the run's median gap, in logarithms, that a hypothesis closes."""
    gap = statistics.median(abs(math.log(each.ratio)) for each in run)
    left = statistics.median(
        abs(math.log(each.measured_s / max(hypothesis.expected_s(each), 1e-12))) for each in run
    )
    return max(1.0 - left / gap, 0.0) if gap else 0.0


def _sentence(
    hypothesis: Hypothesis, expected: float, point: Evidence, run: Sequence[Evidence]
) -> str:
    """The claim, then the numbers."""
    words = f"{hypothesis.words}: forecast {milliseconds(expected)} then, "
    words += f"measured {milliseconds(point.measured_s)}"
    fitting = sum(each.explains(max(hypothesis.expected_s(each), 1e-12)) for each in run)
    return f"{words}; so it is at {fitting} of {len(run)} points" if len(run) > 1 else words


def hypotheses(point: Evidence, run: Sequence[Evidence]) -> Iterable[Hypothesis]:
    """All that could be meant, for a point that is slower or faster than forecast."""
    yield from _formats(point)
    yield from _caches(point)
    yield from _devices(point)
    yield from _ranks(point)
    if point.slow:
        yield from _host(run)
    if point.fast:
        yield from _batches(point)
        yield from _drafts(run)


def _formats(point: Evidence) -> Iterable[Hypothesis]:
    """Weights stored in another format than stated; embeddings and head stay as they are."""
    architecture = point.placed.setup.architecture
    bits, inside = stored_bits(architecture), _share_inside(architecture)
    for name, other in _STORED.items():
        ratio = other / bits
        if max(ratio, 1 / ratio) > _DIFFERENT and (ratio > 1) == point.slow:
            words = f"weights stored as {name} rather than in {bits:.3g} bits each"
            scaled = _scaled(weights=1.0 + inside * (ratio - 1.0))
            yield Hypothesis("weight_dtype", 0.9, words, scaled)


def _caches(point: Evidence) -> Iterable[Hypothesis]:
    setup = point.placed.setup
    now = element_bytes(setup.kv_dtype)
    for name in _CACHED:
        ratio = element_bytes(name) / now
        if max(ratio, 1 / ratio) > _DIFFERENT and (ratio > 1) == point.slow:
            words = f"the KV cache kept in {name} rather than {setup.kv_dtype}"
            yield Hypothesis("kv_dtype", 0.85, words, _scaled(kv_cache=ratio))


def _devices(point: Evidence) -> Iterable[Hypothesis]:
    """Another device that goes by the same family name: PCIe for SXM, 40 GB for 80 GB."""
    setup = point.placed.setup
    for other in relatives(setup.device):
        slower = _bandwidth(setup) / (other.memory_bandwidth_bytes_per_s or math.inf)
        if max(slower, 1 / slower) > 1.1 and (slower > 1) == point.slow:
            faster = _peak(setup.device) / (_peak(other) or math.inf) or 1.0
            words = f"the device is {other.id} rather than {setup.device.id}"
            memory = dict.fromkeys(_MEMORY, slower)
            yield Hypothesis("device", 0.8, words, _scaled(compute=faster, **memory))


def _ranks(point: Evidence) -> Iterable[Hypothesis]:
    """More or fewer tensor-parallel devices than stated."""
    setup = point.placed.setup
    now = setup.parallelism.tensor
    for size in _SIZES:
        if size != now and (size < now) == point.slow:
            ratio = now / size
            words = f"{size} tensor-parallel device{'s' * (size > 1)} rather than {now}"
            parts = dict.fromkeys((*_MEMORY, "compute"), ratio)
            yield Hypothesis("devices", 0.8, words, _scaled(**parts))


def _host(run: Sequence[Evidence]) -> Iterable[Hypothesis]:
    """Time that no kernel shows: the same for each step, or the same for each sequence."""
    kernels = run[0].cost.launches
    each_step = statistics.median(each.measured_s - each.expected_s for each in run)
    several = len({round(each.cost.batch) for each in run}) > 2
    if kernels and credible("kernel_dispatch_s").holds(each_step / kernels):
        cause, claim = _dispatch(run[0], each_step / kernels)
        words = (
            f"{claim}: {milliseconds(each_step)} a step is {1e6 * each_step / kernels:.1f} us "
            f"for each of {kernels:.0f} kernels"
        )
        prior = 0.85 if several else 0.7
        yield Hypothesis(cause, prior, words, lambda each: each.expected_s + each_step)
    each_sequence = statistics.median(
        (each.measured_s - each.expected_s) / each.cost.batch for each in run
    )
    if credible("sequence_host_s").holds(each_sequence):
        words = (
            f"a host-bound step: {1e6 * each_sequence:.0f} us for each sequence of the batch "
            "(scheduling, sampling, detokenising)"
        )
        prior = 0.85 if several else 0.65
        yield Hypothesis(
            "host_bound",
            prior,
            words,
            lambda each: each.expected_s + each_sequence * each.cost.batch,
        )


def _dispatch(point: Evidence, each_s: float) -> tuple[str, str]:
    """Eager kernels, or what the ideal profile leaves out and graphs pay as well."""
    floor = point.placed.setup.profile.engine == "ideal"
    if floor and credible("graph_kernel_s").holds(each_s):
        return "launch_and_host", "launches and host, of which the ideal profile counts none"
    return "eager", "eager kernels rather than replayed graphs"


def _batches(point: Evidence) -> Iterable[Hypothesis]:
    """Fewer sequences than labelled: llama-bench's -b, prompts that ran one after the other."""
    if point.cost.batch > 1.5:
        words = f"one sequence at a time, not {point.cost.batch:,.0f} together"
        yield Hypothesis("batch_label", 0.7, words, alone_s)
        words = "a time per token of the whole batch, not of each sequence"
        yield Hypothesis(
            "tpot_of_batch", 0.75, words, lambda each: each.expected_s / each.cost.batch
        )


def _drafts(run: Sequence[Evidence]) -> Iterable[Hypothesis]:
    """Speculative decoding or multi-token prediction: several tokens a step."""
    tokens = statistics.median(1.0 / each.ratio for each in run)
    if credible("tokens_per_step").holds(tokens):
        words = f"speculative decoding that yields {tokens:.2g} tokens a step"
        yield Hypothesis("spec_decode", 0.75, words, lambda each: each.expected_s / tokens)


def _scaled(**ratios: float) -> Callable[[Evidence], float]:
    """The expected step with some of its parts scaled."""

    def expected(each: Evidence) -> float:
        parts = each.cost.parts_s
        changed = sum((ratio - 1.0) * parts[name] for name, ratio in ratios.items())
        return each.expected_s + changed

    return expected


def alone_s(each: Evidence) -> float:
    """The step of one sequence: what the batch shares, and one sequence's part of the rest."""
    parts, batch = each.cost.parts_s, each.cost.batch
    own = parts_total(parts, "kv_cache", "activations", "compute")
    return each.cost.step_s - own * (1.0 - 1.0 / batch)


def stored_bits(architecture: Architecture) -> float:
    """Mean bits of a weight inside the layers that a step multiplies with.

    >>> from roofcast.simulator.models import load
    >>> stored_bits(load("llama-3.1-8b"))
    16.0
    """
    held, elements = _inside(architecture)
    return 8.0 * held / elements if elements else find_format(architecture.dtype).bits


def _share_inside(architecture: Architecture) -> float:
    """Part of the bytes a step multiplies with that lies inside the layers."""
    held, _ = _inside(architecture)
    head = sum(weight.bytes for weight in architecture.head if weight.use == "matmul")
    return held / (held + head) if held + head else 1.0


def _inside(architecture: Architecture) -> tuple[float, float]:
    """Bytes and elements of the layers' matrices, all experts included."""
    held = elements = 0.0
    for layer in architecture.layers:
        routed = layer.experts.weights if layer.experts else ()
        copies = layer.experts.count if layer.experts else 0
        for weight, count in [*((w, 1) for w in layer.weights), *((w, copies) for w in routed)]:
            if weight.use == "matmul":
                held += count * weight.bytes
                elements += count * weight.parameters
    return held, elements


def relatives(device: Accelerator) -> tuple[Accelerator, ...]:
    """Devices that share a family name with this one and have a known bandwidth."""
    return tuple(
        other
        for other in all_accelerators()
        if other.id != device.id
        and set(other.families) & set(device.families)
        and other.memory_bandwidth_bytes_per_s
    )


def _bandwidth(setup: Setup) -> float:
    return Roofs(setup.device, ideal(setup.device.id)).bandwidth_bytes_per_s


def _peak(device: Accelerator) -> float:
    return device.peak_flops_per_s.get("bf16", 0.0)
