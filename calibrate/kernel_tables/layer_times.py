"""Layer times of LLMServingSim's vLLM profiler as kernel groups: one model, one GPU, every batch.

Its `layers` table has a latency for each layer and count of tokens, its `attention` table one for each
mix of a prompt chunk and decoding sequences. Source: casys-kaist/LLMServingSim (MIT).

    gpu, model, tp, profile, layer, m, unit_of_m, latency_us
    gpu, model, tp, profile, prefill_chunk, kv_prefill, n_decode, kv_decode, latency_us
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from roofcast.calibrate.kernel_tables import workloads
from roofcast.calibrate.kernel_tables.forms import form
from roofcast.calibrate.kernel_tables.groups import Group
from roofcast.calibrate.kernel_tables.kernel_fit import fit_group
from roofcast.calibrate.kernel_tables.table import Table, read_csv
from roofcast.calibrate.kernel_tables.workloads import Rows
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError
from roofcast.hardware.profile import HeldOut, Parameter, Profile
from roofcast.simulator.architecture import Architecture, AttentionCore
from roofcast.simulator.engines import find_engine

LAYERS: Final = "llmservingsim_layers.csv.gz"
ATTENTION: Final = "llmservingsim_attention.csv.gz"
SOURCE: Final = "LLMServingSim, vLLM layer profiles (casys-kaist, MIT)"
_NAMES: Final = ("gpu", "model", "dtype", "profile", "layer", "unit_of_m")
_ENGINE: Final = "vllm"


@dataclass(frozen=True, slots=True)
class Profiled:
    """The tables of one GPU and one model on one rank."""

    layers: Table
    attention: Table
    gpu: str
    model: str


def read_profiled(folder: Path, gpu: str, model: str) -> Profiled:
    """Both tables cut to a GPU and a model; InputError where they have none."""
    wanted: Mapping[str, str | float] = {"gpu": gpu, "model": model, "tp": 1.0, "profile": "v1"}
    layers = read_csv(folder / LAYERS, _NAMES).matching(**wanted)
    attention = read_csv(folder / ATTENTION, _NAMES).matching(**wanted)
    if not len(layers) or not len(attention):
        raise InputError(f"{folder} holds no layer times of {model} on {gpu}")
    return Profiled(layers, attention, gpu, model)


def groups(profiled: Profiled, architecture: Architecture) -> Iterator[Group]:
    """Matrix products in bf16, and attention of decode steps alone."""
    yield _products(profiled, architecture)
    yield _decoding(profiled, architecture)


def profile_of(
    profiled: Profiled, architecture: Architecture, device: Accelerator, base: Profile
) -> Profile:
    """A profile whose bf16 products and attention are the fitted ones, and the rest `base`'s.

    A group replaces the parameters of its own suffix, those of fp16, which runs alike, and those
    without a suffix, which stand for formats nobody measured.
    """
    parameters, judged = dict(base.parameters), []
    for group in groups(profiled, architecture):
        fitted = fit_group(group, device, form(group.table))
        own = fitted.parameters()
        plain = {
            name.replace(group.suffix, like): _stands(each)
            for name, each in own.items()
            for like in ("", group.suffix.replace("bf16", "fp16"))
        }
        gone = [name for name in parameters if _replaced(name, group)]
        parameters = {k: v for k, v in parameters.items() if k not in gone} | own | plain
        errors = fitted.errors(group.rows, device)
        judged.append(
            HeldOut(
                scheme=f"kernels of {group.label}, in the fit",
                runs=errors.rows,
                median_ape=round(errors.median_ape, 4),
                p90_ape=round(errors.p90_ape, 4),
                signed_median=round(errors.signed_median, 4),
            )
        )
    return replace(
        base,
        name=f"{device.id} under {_ENGINE}",
        origin=f"{SOURCE}; other formats {base.origin}",
        parameters=dict(sorted(parameters.items())),
        held_out=tuple(judged),
        warnings=(),
    )


def _replaced(name: str, group: Group) -> bool:
    """Whether a parameter belongs to the group: of its kind, with its suffix or with none."""
    kind, _, rest = name.partition(".")
    alike = (group.suffix, group.suffix.replace("bf16", "fp16"))
    return kind == group.table and ("." not in rest or _suffix(rest) in alike)


def _suffix(rest: str) -> str:
    """What follows a term: `.attention.bf16` of `block_s.attention.bf16`."""
    return rest[rest.index(".") :] if "." in rest else ""


def _stands(parameter: Parameter) -> Parameter:
    return replace(parameter, origin="transferred", note="that of bf16")


def _source(profiled: Profiled) -> str:
    return f"{SOURCE}, {profiled.gpu}/{profiled.model}"


def _products(profiled: Profiled, architecture: Architecture) -> Group:
    shapes = _shapes(architecture)
    chosen = np.isin(profiled.layers["layer"], list(shapes))
    part = profiled.layers.where(chosen)
    size = np.array([shapes[str(layer)] for layer in part["layer"]], dtype=float)
    table = Table(
        {"m": part["m"], "n": size[:, 0], "k": size[:, 1], "latency_s": part["latency_s"]}
    )
    operators = workloads.gemm(table, "bfloat16", find_engine(_ENGINE))
    cached = operators[0].weight_bytes
    rows = Rows(operators, table["latency_s"], table.groups(("n", "k")), np.asarray(cached))
    return Group("gemm", ".bf16", rows, "", _source(profiled))


def _decoding(profiled: Profiled, architecture: Architecture) -> Group:
    core = next(
        core for layer in architecture.layers for core in layer.cores
        if isinstance(core, AttentionCore)
    )  # fmt: skip
    part = profiled.attention.matching(prefill_chunk=0.0)
    full = np.ones(len(part))
    table = Table(
        {
            "batch": part["n_decode"],
            "kv_tokens": part["kv_decode"] + 1.0,
            "heads": full * core.query_heads,
            "kv_heads": full * core.kv_heads,
            "head_dim": full * core.key_dim,
            "window": full * 0.0,
            "latency_s": part["latency_s"],
        }
    )
    operators = workloads.attention(table, "bf16", find_engine(_ENGINE))
    rows = Rows(
        operators, table["latency_s"], table.groups(("kv_tokens",)), operators[0].kv_read_bytes
    )
    return Group("attention", ".attention.bf16", rows, "", _source(profiled))


def _shapes(architecture: Architecture) -> dict[str, tuple[float, float]]:
    """Rows and columns of each product of a layer, and of the head, joined as vLLM joins them."""
    found: dict[str, tuple[float, float]] = {}
    for weight in (*architecture.layers[0].weights, *architecture.head):
        if weight.use == "vector":
            continue
        rows = found.get(weight.op, (0.0, 0.0))[0] + weight.rows
        found[weight.op] = (float(rows), float(weight.columns))
    return found
