"""From a folder of kernel tables to profiles: one per engine."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from roofcast.calibrate.kernel_tables.forms import form
from roofcast.calibrate.kernel_tables.groups import engines_of, groups
from roofcast.calibrate.kernel_tables.identified import settled
from roofcast.calibrate.kernel_tables.judging import held_out
from roofcast.calibrate.kernel_tables.kernel_fit import KernelFit, fit_group
from roofcast.calibrate.kernel_tables.sources import PUBLIC, Folder
from roofcast.calibrate.kernel_tables.workloads import Rows
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError, unknown
from roofcast.hardware.profile import Band, HeldOut, Parameter, Profile

_PREFERRED: Final = (".bf16", ".attention.bf16", ".fp8_block", ".fp8", ".nvfp4")
JUDGED: Final = "kernels of "
OTHER_HALF: Final = ", other half of the shapes"


def calibrate_kernels(
    directory: str | Path, device: Accelerator, engine: str | None = None, source: str = PUBLIC
) -> tuple[Profile, ...]:
    """Profiles of a device from its kernel tables: all engines found there, or the one named.

    `source` says who measured the tables; parameters carry it. Known mistakes are left out of the
    public tables alone.

    Formats that one engine's tables lack come from another engine on the same device, and say so.
    Raises UnknownNameError for an engine without tables, InputError for a folder without.
    """
    folder = Folder.of(directory, device.id, source)
    found = engines_of(folder)
    if not found:
        raise InputError(f"the kernel tables of {folder.gpu} in {folder.path} have no rows")
    if engine is not None and engine not in found:
        raise unknown(f"engine in the kernel tables of {folder.gpu}", engine, found)
    free = {name: fit_engine(folder, device, name) for name in found}
    everyone = [each for fits in free.values() for each in fits]
    fits = {name: tuple(settled(own, everyone, device)) for name, own in free.items()}
    wanted = [name for name in found if engine is None or name == engine]
    made = (_profile(name, fits, device) for name in wanted)
    return tuple(replace(each, origin=f"kernel tables of {source}") for each in made)


def fit_engine(folder: Folder, device: Accelerator, engine: str) -> tuple[KernelFit, ...]:
    """Every group of one engine's tables, fitted."""
    return tuple(fit_group(group, device, form(group.table)) for group in groups(folder, engine))


def _profile(engine: str, fits: Mapping[str, Sequence[KernelFit]], device: Accelerator) -> Profile:
    """An engine's own kernels, other engines' where it has none, defaults and assumed costs."""
    parameters: dict[str, Parameter] = {}
    for each in fits[engine]:
        parameters.update(each.parameters())
    parameters.update(_borrowed(engine, fits, device))
    parameters.update(_defaults(parameters))
    parameters.update(_aliases(parameters))
    parameters.update(_assumed(engine, parameters))
    return Profile(
        name=f"{device.id} under {engine}",
        device=device.id,
        engine=engine,
        origin="kernel tables",
        parameters=dict(sorted(parameters.items())),
        valid_range={"batch": (1.0, 2048.0), "context": (1.0, 131072.0)},
        held_out=tuple(judged for each in fits[engine] for judged in _judged(each, device)),
        band=_band(),
    )


def _judged(fitted: KernelFit, device: Accelerator) -> Iterable[HeldOut]:
    errors = held_out(fitted.group, device, fitted)
    if errors is None:
        return
    yield HeldOut(
        scheme=f"{JUDGED}{fitted.group.label}{OTHER_HALF}",
        runs=errors.rows,
        median_ape=round(errors.median_ape, 4),
        p90_ape=round(errors.p90_ape, 4),
        signed_median=round(errors.signed_median, 4),
    )


def _family(name: str) -> tuple[str, str]:
    """A parameter's kind and what follows its term: those of one group are the same.

    >>> _family("gemm.fixed_s.fp8"), _family("attention.loop_s.window_attention.bf16")
    (('gemm', 'fp8'), ('attention', 'window_attention.bf16'))
    """
    kind, _, rest = name.partition(".")
    return kind, rest.partition(".")[2]


def _borrowed(
    engine: str, fits: Mapping[str, Sequence[KernelFit]], device: Accelerator
) -> dict[str, Parameter]:
    """Kernels that only other engines' tables have, from the engine that runs them fastest."""
    have = {each.group.label for each in fits[engine]}
    lenders: dict[str, list[tuple[str, KernelFit]]] = {}
    for name, theirs in fits.items():
        for each in theirs:
            if each.group.label not in have and each.form.kind != "collective":
                lenders.setdefault(each.group.label, []).append((name, each))
    found: dict[str, Parameter] = {}
    for offers in lenders.values():
        rows = offers[0][1].group.rows
        lender, best = min(offers, key=lambda offer: _log_time(offer[1], rows, device))
        for name, parameter in best.parameters().items():
            found[name] = _transferred(parameter, f"measured under {lender}")
    return found


def _log_time(fitted: KernelFit, rows: Rows, device: Accelerator) -> float:
    """Mean logarithm of what rows would take from memory."""
    return float(np.mean(np.log(fitted.from_memory(rows, device))))


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
