"""A profile: what one device achieves under one engine, measured, with errors and a valid range.

A profile never replaces the spec of a device; it says which fraction of each roof is reached and which
fixed times a step pays. The ideal profile reaches every roof and pays nothing: the physical floor.

Parameters, by operator kind (gemm, experts, attention, state, elementwise, collective):

    <kind>.fixed_s                  seconds a kernel takes besides the rest
    <kind>.matrix_s                 seconds each matrix of a grouped product adds, where run in turn
    <kind>.bandwidth_efficiency     fraction of the memory roof
    <kind>.compute_efficiency       fraction of the dense peak; may end in a dtype too
    <kind>.bandwidth_growth         exponent with which the memory's grows with a matrix, from 16 MiB on
    <kind>.activation_factor        times an operator moves its activations; absent: once
    <kind>.loop_s                   seconds a block of threads takes for an inner dimension of 4096
    <kind>.loop_exponent, <kind>.loop_rows_exponent   how that grows with dimension and rows
    <kind>.block_s                  seconds an independent piece of work holds a compute unit
    <kind>.exponent                 p of (sum of x^p)^(1/p) that joins them; absent: the largest
    collective.latency_s[.<ranks>], collective.bandwidth_efficiency[.<ranks>]
    host.step_s, host.layer_s, host.sequence_s   seconds a step, a layer, a sequence adds
    host.kernel_s                   seconds of dispatch a kernel: a step lasts at least so long

and, measured in whole steps of an engine rather than alone:

    <kind>.scale, <kind>.fixed_scale    times a kind's roofs, and its fixed costs, take in a step
    <kind>.launch_s                 seconds a kernel takes besides its roof, in place of fixed_s
    experts.skew                    Zipf exponent of expert use
    prefill.scale, prefill.experts_scale   the same when a whole prompt is read, of products and experts
    prefill.attention_scale         the same of attention and recurrent mixers, from the bare roofs
    prefill.activation_factor       times element-wise operators move their bytes then
    prefill.layer_s, prefill.step_s     seconds of a pass that reads prompts, by layer and in all
    prefill.state_s                 seconds of such a pass for each kernel of a recurrent mixer
    host.request_s, host.prompt_token_s   seconds a request, and each token of its prompt, takes outside
                                    of any step (tokeniser, transport)

A parameter of a kind may end in an operator's name and format, in its name, or in its format
(``attention.fixed_s.window_attention.fp8``, ``elementwise.fixed_s.sampler``,
``gemm.bandwidth_efficiency.fp8``); the most specific one counts. The formulas are in
simulator/roofline.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

SCHEMA_VERSION = 1

Origin = Literal["measured", "fitted", "transferred", "assumed", "ideal"]
_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a profile, with where it comes from and how sure it is.

    `standard_error` is None where none could be estimated; `note` says why, or what limits it.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    value: float
    unit: str
    origin: Origin
    standard_error: float | None = None
    sources: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A measured multiplier on an operator's roof time against one axis, log-interpolated.

    Beyond its ends a curve keeps its last value: extrapolation is left to the roof.
    `standard_errors` are those of the values, where they are known.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    axis: str
    points: tuple[float, ...]
    values: tuple[float, ...]
    origin: Origin = "measured"
    sources: tuple[str, ...] = ()
    standard_errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors of forecasts on runs the fit did not see. Fractions, not per cent."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    scheme: str
    runs: int
    median_ape: float
    p90_ape: float
    signed_median: float
    coverage: float | None = None

    @property
    def of_kernels(self) -> bool:
        """Whether single kernels were judged, not steps or replies."""
        return self.scheme.startswith("kernels of ")


@dataclass(frozen=True, slots=True)
class Band:
    """The 80 % interval of a forecast as log ratios measured / forecast: exp(low), exp(high)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    low: float
    high: float
    origin: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured efficiencies and overheads of `device` under `engine`.

    `roofs` holds what the datasheet doesn't say (a CPU's sustained bandwidth in bytes/s under
    ``memory_bandwidth_bytes_per_s``, its FLOP/s under ``peak_flops_per_s.<dtype>``). `valid_range`
    bounds batch, context and the like; a forecast outside says that it extrapolates. `bands` holds
    intervals of what is served, by metric, where `band` is that of a step.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    name: str
    device: str
    engine: str
    origin: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    roofs: Mapping[str, float] = field(default_factory=dict)
    valid_range: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    conditions: Mapping[str, str | float] = field(default_factory=dict)
    held_out: tuple[HeldOut, ...] = ()
    band: Band | None = None
    bands: Mapping[str, Band] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    created: str = ""

    def value(self, name: str, default: float, *variants: str) -> float:
        """The parameter `name.<variant>` of the first variant there is, else `name`, else `default`."""
        for variant in variants:
            parameter = self.parameters.get(f"{name}.{variant}")
            if parameter is not None:
                return parameter.value
        parameter = self.parameters.get(name)
        return default if parameter is None else parameter.value


def ideal(device: str) -> Profile:
    """The physical floor: every roof reached, no overhead."""
    return Profile(
        name="ideal",
        device=device,
        engine="ideal",
        origin="physical floor: efficiencies 1, overheads 0",
        band=None,
    )
