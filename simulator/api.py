"""The front door: names in, a forecast out.

    from roofcast.simulator import forecast
    forecast("llama-3.1-8b", "h100-sxm", batch=[1, 8, 64], context=8192).tokens_per_s

Arrays broadcast as in NumPy; `grid` turns a list of batches and a list of contexts into all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from roofcast.hardware import profile_store
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.catalog import find
from roofcast.hardware.detect import attached
from roofcast.hardware.errors import InputError, UnknownSpecError
from roofcast.hardware.profile import Profile, ideal
from roofcast.simulator import prompt_attention
from roofcast.simulator.architecture import Architecture
from roofcast.simulator.memory_policy import Launch
from roofcast.simulator.models import load
from roofcast.simulator.operators import Pass
from roofcast.simulator.prediction import Forecast, forecast_pass
from roofcast.simulator.prompt_profile import prompt_profile
from roofcast.simulator.quantization import requantise
from roofcast.simulator.roofline import Roofs
from roofcast.simulator.workload import Array, Parallelism, Workload

ATTACHED = ("auto", "attached", "this", "cpu", "cuda", "mps")


@dataclass(frozen=True, slots=True)
class Setup:
    """A model on a device: everything about a forecast except the points.

    `parallelism` lays out one replica; `weight_dtype` re-stores the weights as another format (None:
    as the checkpoint has them), `kv_dtype` the cache; `skew` is the Zipf exponent of expert use.
    `kernels` names an entry of engines.toml other than the profile's engine (a launch option);
    `launch` is what else the engine was started with: memory, token budget, sequences.
    """

    architecture: Architecture
    device: Accelerator
    profile: Profile
    parallelism: Parallelism = Parallelism()
    kv_dtype: str = "bf16"
    activation_dtype: str = "bf16"
    skew: float | None = None
    kernels: str | None = None
    launch: Launch = Launch()

    def decode(self, batch: ArrayLike, context: ArrayLike, new: ArrayLike = 1) -> Forecast:
        """Forecast of one decode step; InputError beyond the model's context limit."""
        self.check_context(float(np.max(context, initial=0)) + float(np.max(new)))
        return forecast_pass(self.costed(Workload.decode(batch, context, new)), *self._where)

    def prefill(self, batch: ArrayLike, prompt: ArrayLike, cached: ArrayLike = 0) -> Forecast:
        """Forecast of a prompt read in one pass, `cached` tokens of it already in the cache."""
        self.check_context(float(np.max(prompt)))
        work = self.costed(Workload.prefill(batch, prompt, cached))
        reading = prompt_attention.reading(prompt_profile(self.profile), self.device)
        return forecast_pass(work, self.device, reading)

    @property
    def _where(self) -> tuple[Accelerator, Profile]:
        return self.device, self.profile

    def costed(self, workload: Workload) -> Pass:
        """Any mix of tokens under this setup, ready to be costed."""
        return Pass(
            self.architecture,
            workload,
            self.parallelism,
            self.kv_dtype,
            self.activation_dtype,
            self.profile.value("experts.skew", 0.0) if self.skew is None else self.skew,
            engine=self.kernels or self.profile.engine,
            launch=self.launch,
        )

    def check_context(self, longest: float) -> None:
        """Raise InputError where `longest` tokens are beyond the model's limit."""
        limit = self.architecture.max_context
        if limit is not None and longest > limit:
            raise InputError(
                f"a context of {longest:.0f} tokens (the new one included) is beyond the "
                f"{limit} that {self.architecture.name} allows"
            )


def setup(
    model: str | Path | Architecture,
    device: str | Path | Accelerator,
    *,
    engine: str | None = None,
    profile: str | Path | Profile | None = None,
    parallelism: Parallelism | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
) -> Setup:
    """Resolve names into a `Setup`.

    Raises UnknownNameError for what is unknown, UnknownSpecError for a device without the numbers.
    """
    architecture = model if isinstance(model, Architecture) else load(model)
    if weight_dtype is not None:
        architecture = requantise(architecture, weight_dtype)
    machine = device if isinstance(device, Accelerator) else find_device(device)
    return Setup(
        architecture=architecture,
        device=machine,
        profile=_with_gaps(find_profile(machine, engine, profile), machine, architecture),
        parallelism=parallelism or Parallelism(),
        kv_dtype=kv_dtype or architecture.kv_dtype or architecture.dtype,
        activation_dtype=architecture.dtype,
    )


def forecast(
    model: str | Path | Architecture,
    device: str | Path | Accelerator,
    batch: ArrayLike = 1,
    context: ArrayLike = 1024,
    **options: object,
) -> Forecast:
    """Forecast one decode step for every broadcast point of `batch` and `context`.

    `options` are those of `setup`: engine, profile, parallelism, weight_dtype, kv_dtype.
    """
    return setup(model, device, **options).decode(batch, context)  # type: ignore[arg-type]


def grid(batch: ArrayLike, context: ArrayLike) -> tuple[Array, Array]:
    """All pairs of a list of batches (rows) and a list of contexts (columns), for `forecast`."""
    rows = np.atleast_1d(np.asarray(batch, dtype=np.float64))
    columns = np.atleast_1d(np.asarray(context, dtype=np.float64))
    return rows[:, np.newaxis], columns[np.newaxis, :]


def find_device(name: str | Path) -> Accelerator:
    """A device of the catalogue, a user's TOML file, or the attached one (auto, cpu, cuda, mps)."""
    if isinstance(name, str) and name.lower() in ATTACHED:
        prefer = name.lower()
        return attached("auto" if prefer in ("attached", "this") else prefer)
    return find(name)


def find_profile(
    device: Accelerator, engine: str | None, wanted: str | Path | Profile | None
) -> Profile:
    """The profile for a device: as asked for, else this user's, else shipped, else transferred.

    An engine that relatives were measured under is lent by them. Where only outdated engines were
    measured on the device, so is the engine of today, if its relatives are near.

    Raises UnknownSpecError where the device's roofs are unknown and nothing was measured.
    """
    if isinstance(wanted, Profile):
        return wanted
    if wanted == "ideal" or engine == "ideal":
        return ideal(device.id)
    if wanted is not None:
        return _of_this_device(profile_store.read(wanted), device, Path(wanted))
    engines = profile_store.engines(device.id)
    if engines and (engine in engines or engine is None):
        found = profile_store.choose(device.id, engine)
        if found is not None and (engine or found.engine in profile_store.BY_USE):
            return found
        from roofcast.hardware.transfer import near

        if found is not None and not near(device):
            return found
    if device.memory_bandwidth_bytes_per_s is None:
        raise UnknownSpecError(
            f"{device.id} has no known memory bandwidth and was never measured: "
            "run `roofcast calibrate` on it, or give --profile"
        )
    from roofcast.hardware.transfer import transferred

    return transferred(device, engine)


def _with_gaps(profile: Profile, device: Accelerator, architecture: Architecture) -> Profile:
    """The profile with a warning for each peak that the model's products need and no one states."""
    peaks = device.peak_flops_per_s
    if peaks.get("bf16") or peaks.get("fp16") or not peaks.get("fp32"):
        return profile
    roofs = Roofs(device, profile)
    experts = (layer.experts.weights for layer in architecture.layers if layer.experts)
    weights = (each for part in (architecture.weights(), *experts) for each in part)
    computed = {architecture.dtype, *(each.format.compute for each in weights)}
    found = tuple(gap for dtype in sorted(computed) if (gap := roofs.gap(dtype)))
    return replace(profile, warnings=(*profile.warnings, *found)) if found else profile


def _of_this_device(profile: Profile, device: Accelerator, path: Path) -> Profile:
    """A profile of another device is allowed, but the forecast says so."""
    if profile.device == device.id:
        return profile
    warning = f"{path.name} was measured on {profile.device}, not on {device.id}"
    return replace(profile, warnings=(*profile.warnings, warning))
