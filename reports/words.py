"""Forecasts in sentences: what was asked, what holds the step back, how much to trust it."""

from __future__ import annotations

import numpy as np

from roofcast.hardware.profile import Band, HeldOut, Profile
from roofcast.reports import units
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.engines import successor
from roofcast.simulator.insight import Batching
from roofcast.simulator.prediction import CAUSES, Forecast
from roofcast.simulator.roofline import Roofs
from roofcast.simulator.workload import Parallelism

CAUSE_WORDS = {
    "weights": "reading weights",
    "kv_cache": "the KV cache",
    "activations": "activations",
    "compute": "arithmetic",
    "interconnect": "the interconnect",
    "overhead": "launches and the host",
}


def subject(forecast: Forecast) -> str:
    """Model, device, layout and dtypes in one line."""
    work = forecast.work
    parts = [
        f"{work.architecture.name} on {forecast.device}",
        layout(work.parallelism),
        f"{weight_format(work.architecture)} weights",
        f"{work.kv_dtype} cache",
    ]
    return ", ".join(parts)


def layout(ranks: Parallelism) -> str:
    """The devices of a replica and how they share it.

    >>> layout(Parallelism(tensor=4, pipeline=2)), layout(Parallelism())
    ('8 devices (TP 4, PP 2)', '1 device')
    """
    names = (("TP", ranks.tensor), ("PP", ranks.pipeline), ("EP", ranks.expert), ("DP", ranks.data))
    split = ", ".join(f"{name} {size}" for name, size in names if size > 1)
    count = f"{ranks.devices} device{'s' if ranks.devices > 1 else ''}"
    return f"{count} ({split})" if split else count


def weight_format(architecture: Architecture) -> str:
    """The format that holds most of a model's weight bytes."""
    held: dict[str, float] = {}
    for weight in architecture.weights():
        held[weight.format.name] = held.get(weight.format.name, 0.0) + weight.bytes
    for layer in architecture.layers:
        for weight in layer.experts.weights if layer.experts else ():
            count = layer.experts.count if layer.experts else 0
            held[weight.format.name] = held.get(weight.format.name, 0.0) + count * weight.bytes
    return max(held, key=lambda name: held[name])


def why(forecast: Forecast, index: int) -> str:
    """Which bound holds at one point, and the causes of its step time, largest first."""
    shares = shares_at(forecast, index)
    return f"{bound_at(forecast, index)}: {split(shares)}"


def split(shares: dict[str, float]) -> str:
    """Causes with their share of a time, largest first; those below 1 % are left out.

    >>> split({"weights": 0.7, "kv_cache": 0.295, "compute": 0.005})
    '70 % reading weights, 30 % the KV cache'
    """
    named = [
        name for name in sorted(shares, key=lambda each: -shares[each]) if shares[name] >= 0.01
    ]
    return ", ".join(f"{units.percent(shares[name])} {CAUSE_WORDS[name]}" for name in named)


def shares_at(forecast: Forecast, index: int) -> dict[str, float]:
    """Fraction of the step time of one point by cause."""
    shape = forecast.step_time_s.shape
    total = np.ravel(forecast.step_time_s)[index]
    return {
        name: float(np.ravel(np.broadcast_to(forecast.causes[name], shape))[index] / total)
        for name in CAUSES
    }


def bound_at(forecast: Forecast, index: int) -> str:
    """The bound of one point: memory-bound, compute-bound, bound by the interconnect or overhead."""
    bound = str(np.ravel(forecast.bound)[index])
    words = {
        "interconnect": "bound by the interconnect",
        "overhead": "bound by launches and the host",
    }
    return words.get(bound, f"{bound}-bound")


def batching(found: Batching) -> str:
    """How far batching pays, as the end of a sentence.

    >>> batching(Batching(12, "kv_cache", 55))
    'batching pays up to about 12, where the KV cache takes over; memory holds 55'
    """
    if found.limit == 0:
        return "not even one sequence fits in memory"
    if found.cause == "memory":
        return f"batching pays right up to the {about(found.limit)} sequences that memory holds"
    if found.cause == "range":
        return "batching pays without an end in sight"
    room = f"memory holds {about(found.limit)}"
    if found.batch <= 1:
        grows = CAUSE_WORDS[found.cause]
        return f"batching pays little even at 1, because {grows} grows with it; {room}"
    return (
        f"batching pays up to about {about(found.batch)}, where {CAUSE_WORDS[found.cause]} "
        f"takes over; {room}"
    )


def about(value: float) -> str:
    """A whole number to two significant digits.

    >>> about(443), about(12), about(1234)
    ('440', '12', '1,200')
    """
    return f"{float(f'{value:.1e}'):,.0f}"


def provenance(profile: Profile) -> str:
    """Which profile, and where it comes from."""
    if profile.engine == "ideal":
        return "Profile: ideal, the physical floor (every roof reached, no overhead)."
    day = profile.created[:10]
    made = f", made {day}" if day and day not in profile.origin else ""
    newer = successor(profile.engine)
    aged = f" These are older versions; --engine {newer} forecasts today's." if newer else ""
    return f"Profile: {profile_name(profile)}{made}: {profile.origin}.{aged}"


def profile_name(profile: Profile) -> str:
    """A profile's name, with its engine where the name does not say it."""
    named = profile.engine in profile.name
    return profile.name if named else f"{profile.name} ({profile.engine})"


def trust(profile: Profile) -> str:
    """The error band of a profile's forecasts, or that it has none."""
    if profile.engine == "ideal":
        return "Error: a floor has no error band; real engines take longer."
    if profile.band is None:
        return f"Error: {judgement(profile)}; no error band."
    return f"Error: {judgement(profile)}; {band(profile.band)} ({profile.band.origin})."


def band(band: Band | None) -> str:
    """The 80 % interval of measured step times around a forecast.

    >>> band(Band(-0.25, 0.25, "assumed"))
    '80 % band −22 % to +28 %'
    """
    if band is None:
        return "no error band"
    return f"80 % band {signed(np.expm1(band.low))} to {signed(np.expm1(band.high))}"


def judgement(profile: Profile) -> str:
    """What is known of a profile's errors: on whole steps if it was judged on some, else on kernels."""
    errors = step_errors(profile)
    if errors is not None:
        return held_out(errors)
    if not profile.held_out:
        return "not judged on any run"
    medians = sorted(each.median_ape for each in profile.held_out)
    return (
        f"not judged on whole steps; kernels off by {units.percent(medians[0])} to "
        f"{units.percent(medians[-1])} in the median, by operator, on shapes it had not seen"
    )


def step_errors(profile: Profile) -> HeldOut | None:
    """The first errors of a profile that are of whole steps, not of single kernels."""
    steps = (each for each in profile.held_out if not each.of_kernels)
    return next(steps, None)


def held_out(errors: HeldOut) -> str:
    """Errors on runs the fit did not see.

    >>> held_out(HeldOut("held-out models", 24, 0.042, 0.09, -0.01))
    'median 4.2 %, p90 9.0 % on 24 runs it had not seen (held-out models)'
    """
    return (
        f"median {units.percent(errors.median_ape)}, p90 {units.percent(errors.p90_ape)} "
        f"on {errors.runs} runs it had not seen ({errors.scheme})"
    )


def extrapolation(forecast: Forecast) -> str:
    """How many points lie outside what was measured; empty where none does."""
    outside = int(np.sum(forecast.extrapolates))
    if not outside:
        return ""
    ranges = ", ".join(
        f"{name} {units.tokens(low)} to {units.tokens(high)}"
        for name, (low, high) in forecast.profile.valid_range.items()
    )
    total = forecast.step_time_s.size
    which = "This point lies" if total == 1 else f"{outside} of {total} points lie"
    return f"{which} outside what the profile was measured on ({ranges}): extrapolated."


def sustained(forecast: Forecast, index: int) -> str:
    """How much of the memory roof a point reaches, and whose roof that is."""
    mbu = float(np.ravel(np.broadcast_to(forecast.mbu, forecast.step_time_s.shape))[index])
    peak = Roofs(forecast.device, forecast.profile).bandwidth_bytes_per_s
    rate = units.tidy(peak, "B/s")
    if forecast.device.memory_bandwidth_bytes_per_s is None:
        return f"{units.percent(mbu)} of the {rate} this machine sustains"
    return f"{units.percent(mbu)} of the datasheet's {rate}"


def signed(fraction: float) -> str:
    """A fraction in per cent with its sign.

    >>> signed(0.15), signed(-0.021)
    ('+15 %', '−2.1 %')
    """
    sign = "−" if fraction < 0 else "+"
    return sign + units.percent(abs(float(fraction)))
