"""From a folder of kernel tables to profiles: one per engine."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from roofcast.calibrate.kernel_tables.forms import form
from roofcast.calibrate.kernel_tables.groups import engines_of, groups
from roofcast.calibrate.kernel_tables.judging import held_out
from roofcast.calibrate.kernel_tables.kernel_fit import KernelFit, fit_group
from roofcast.calibrate.kernel_tables.sources import PUBLIC, Folder
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import unknown
from roofcast.hardware.profile import Band, HeldOut, Parameter, Profile

ORIGIN: Final = f"kernel tables of {PUBLIC}"
_PREFERRED: Final = (".bf16", ".attention.bf16", ".fp8_block", ".fp8", ".nvfp4")
_LENDERS: Final = ("sglang", "trtllm", "vllm")
_SHARED: Final = ("gemm.", "experts.", "attention.", "state.")


def calibrate_kernels(
    directory: str | Path, device: Accelerator, engine: str | None = None
) -> tuple[Profile, ...]:
    """Profiles of a device from its kernel tables: all engines found there, or the one named.

    Formats that one engine's tables lack come from another engine on the same device, and say so.
    Raises UnknownNameError for a device or an engine without tables, InputError for a folder without.
    """
    folder = Folder.of(directory, device.id)
    found = engines_of(folder)
    if engine is not None and engine not in found:
        raise unknown(f"engine in the kernel tables of {folder.gpu}", engine, found)
    own = {name: calibrate_engine(folder, device, name) for name in found}
    complete = [_complete(own[name], own, device) for name in found]
    return tuple(profile for profile in complete if engine in (None, profile.engine))


def calibrate_engine(folder: Folder, device: Accelerator, engine: str) -> Profile:
    """A profile from the tables of one engine alone."""
    parameters: dict[str, Parameter] = {}
    judged: list[HeldOut] = []
    for group in groups(folder, engine):
        fitted = fit_group(group, device, form(group.table))
        parameters.update(fitted.parameters())
        judged.extend(_judged(fitted, device))
    return Profile(
        name=f"{device.id} under {engine}",
        device=device.id,
        engine=engine,
        origin=ORIGIN,
        parameters=parameters,
        valid_range={"batch": (1.0, 2048.0), "context": (1.0, 131072.0)},
        held_out=tuple(judged),
    )


def _judged(fitted: KernelFit, device: Accelerator) -> Iterable[HeldOut]:
    errors = held_out(fitted.group, device)
    if errors is None:
        return
    yield HeldOut(
        scheme=f"kernels of {fitted.group.label}, other half of the shapes",
        runs=errors.rows,
        median_ape=round(errors.median_ape, 4),
        p90_ape=round(errors.p90_ape, 4),
        signed_median=round(errors.signed_median, 4),
    )


def _complete(profile: Profile, all_: Mapping[str, Profile], device: Accelerator) -> Profile:
    """Borrowed formats, defaults for formats nobody measured, and the host's assumed costs."""
    parameters = dict(profile.parameters)
    for lender in _LENDERS:
        if lender in all_ and lender != profile.engine:
            parameters.update(_borrowed(parameters, all_[lender]))
    parameters.update(_defaults(parameters))
    parameters.update(_aliases(parameters))
    parameters.update(_assumed(profile.engine, parameters))
    return replace(
        profile,
        parameters=dict(sorted(parameters.items())),
        band=_band(),
    )


def _family(name: str) -> tuple[str, str]:
    """A parameter's kind and what follows its term: those of one group are the same.

    >>> _family("gemm.fixed_s.fp8"), _family("attention.loop_s.window_attention.bf16")
    (('gemm', 'fp8'), ('attention', 'window_attention.bf16'))
    """
    kind, _, rest = name.partition(".")
    return kind, rest.partition(".")[2]


def _borrowed(own: Mapping[str, Parameter], lender: Profile) -> dict[str, Parameter]:
    """Groups that only the lender's tables have."""
    have = {_family(name) for name in own}
    return {
        name: _transferred(parameter, f"measured under {lender.engine}")
        for name, parameter in lender.parameters.items()
        if name.startswith(_SHARED) and _family(name) not in have
    }


def _transferred(parameter: Parameter, why: str) -> Parameter:
    note = f"{why}; {parameter.note}" if parameter.note else why
    return replace(parameter, origin="transferred", note=note)


def _defaults(own: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """`<kind>.<term>` for formats without a table: those of the most ordinary format measured."""
    found: dict[str, Parameter] = {}
    for kind in ("gemm", "attention", "experts"):
        for suffix in _PREFERRED:
            chosen = {
                name.removesuffix(suffix): parameter
                for name, parameter in own.items()
                if name.endswith(suffix) and _family(name) == (kind, suffix[1:])
            }
            if chosen:
                why = f"stands for formats without a table: that of {suffix[1:]}"
                found.update({n: _transferred(p, why) for n, p in chosen.items()})
                break
    return found


@cache
def _priors() -> Mapping[str, Any]:
    text = resources.files("roofcast.calibrate.kernel_tables").joinpath("priors.toml")
    return tomllib.loads(text.read_text("utf-8"))


def _aliases(own: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Formats that run the kernels of another one."""
    return {
        f"{name.removesuffix('.' + model)}.{alias}": _transferred(parameter, f"that of {model}")
        for alias, model in _priors()["aliases"].items()
        for name, parameter in own.items()
        if name.endswith(f".{model}") and f"{name.removesuffix('.' + model)}.{alias}" not in own
    }


def _assumed(engine: str, own: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """What kernel tables can't tell, until serving points are fitted."""
    priors = _priors()
    why, sources = priors["note"], (priors["source"],)
    found = {
        name: Parameter(entry["value"], entry["unit"], "assumed", None, sources, why)
        for name, entry in priors["parameters"].items()
        if name not in own
    }
    for name, value in priors["by_engine"].get(engine, {}).items():
        found[name] = Parameter(value, "s", "assumed", None, sources, why)
    scale = priors["collective_scale"]
    for name, isolated in own.items():
        if name.startswith("collective.latency_s."):
            note = f"{isolated.value * 1e6:.3g} us measured in isolation x {scale}: {why}"
            value = isolated.value * scale
            found[name] = replace(
                isolated, value=value, origin="assumed", standard_error=None, note=note
            )
    return found


def _band() -> Band:
    entry = _priors()["band"]
    return Band(entry["low"], entry["high"], entry["origin"])
