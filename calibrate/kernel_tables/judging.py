"""What a form is worth: errors on shapes the fit hasn't seen, beside the plain roofline's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from roofcast.calibrate.fitting import Errors
from roofcast.calibrate.kernel_tables.forms import CACHE_TERMS, Form, form, plain
from roofcast.calibrate.kernel_tables.groups import Group, engines_of, groups
from roofcast.calibrate.kernel_tables.kernel_fit import KernelFit, Lent, Mask, fit_group
from roofcast.calibrate.kernel_tables.sources import Folder, l2_bytes
from roofcast.calibrate.kernel_tables.workloads import Rows
from roofcast.hardware.accelerator import Accelerator
from roofcast.simulator.workload import Array

_DECODE_ROWS: Final = 256
_LARGE_WEIGHTS: Final = 8e6
_FEW_TOKENS: Final = 64  # rows an expert sees at most in decode
_FEWEST_SHAPES: Final = 6


@dataclass(frozen=True, slots=True)
class Comparison:
    """Errors of one group of kernels on held-out shapes, before and after a change of form.

    `change` says what came between: the full form for the plain roofline, or a term by name.
    """

    device: str
    engine: str
    kernel: str
    scope: str
    change: str
    before: Errors
    after: Errors


def compare_forms(
    directory: str | Path,
    device: Accelerator,
    engine: str | None = None,
    term: str | None = None,
) -> tuple[Comparison, ...]:
    """The plain roofline against the full form, both fitted on half of the shapes of each group.

    The other half judges them, by scope, and then the other way round. With `term`, the full form
    without that term (and those that need it) takes the roofline's place, for the groups that have it.
    Raises InputError where the folder has no tables of the device.
    """
    folder = Folder.of(directory, device.id)
    wanted = [engine] if engine is not None else engines_of(folder)
    return tuple(
        comparison
        for name in wanted
        for group in groups(folder, name)
        for comparison in _compare(group, device, name, term)
    )


def held_out(group: Group, device: Accelerator, like: KernelFit | None = None) -> Errors | None:
    """Errors of the full form on shapes it wasn't fitted to; None where there are too few shapes.

    `like` is a fit to all shapes: its form, and the values lent to it, are those that are judged.
    """
    if halves(group) is None:
        return None
    lent = None if like is None else like.lent
    form_of = form if like is None else (lambda table: like.form.without(set(CACHE_TERMS)))
    crossed = _crossed(group, device, form_of, lent)
    return Errors.of(np.concatenate([ratios for _, ratios in crossed]))


def halves(group: Group) -> tuple[Mask, Mask] | None:
    """Rows of every other shape, and the rest; None where there are too few shapes."""
    shapes = np.unique(group.rows.shapes)
    if len(shapes) < _FEWEST_SHAPES:
        return None
    drawn = np.random.default_rng(1).permutation(shapes)[: len(shapes) // 2]
    first = np.isin(group.rows.shapes, drawn)
    return first, ~first


def _crossed(
    group: Group,
    device: Accelerator,
    form_of: Callable[[str], Form],
    lent: Mapping[str, Lent] | None = None,
) -> Iterator[tuple[Rows, Array]]:
    """Each half of the shapes with its log ratios under a fit to the other half."""
    split = halves(group)
    for seen, unseen in zip(split or (), (split or ())[::-1], strict=True):
        half = replace(group, rows=group.rows.where(seen))
        fitted = fit_group(half, device, form_of(group.table), lent)
        rows = group.rows.where(unseen)
        yield rows, np.log(rows.measured_s / fitted.predicted(rows, device))


def scopes(group: Group, rows: Rows, device: Accelerator) -> Iterator[tuple[str, Mask]]:
    """Parts of a group that matter by themselves, as masks over its rows."""
    everything = np.ones(rows.measured_s.shape, dtype=bool)
    yield "all", everything
    if group.table == "gemm":
        decode = rows.operators[0].rows <= _DECODE_ROWS
        yield "decode", decode
        yield "decode, large weights", decode & (rows.operators[0].weight_bytes >= _LARGE_WEIGHTS)
    cache = l2_bytes(device)
    if group.cached is not None and cache is not None:
        yield "cold", rows.cached_bytes >= 2 * cache
    if group.table == "experts":
        yield "decode", rows.operators[0].rows <= _FEW_TOKENS


def _compare(
    group: Group, device: Accelerator, engine: str, term: str | None
) -> Iterator[Comparison]:
    if term is not None and term not in {part.name for part in form(group.table).terms}:
        return

    def without(table: str) -> Form:
        return plain(table) if term is None else form(table).without({term})

    before, after = list(_crossed(group, device, without)), list(_crossed(group, device, form))
    judged: dict[str, tuple[list[Array], list[Array]]] = {}
    for (rows, old), (_, new) in zip(before, after, strict=True):
        for scope, chosen in scopes(group, rows, device):
            olds, news = judged.setdefault(scope, ([], []))
            olds.append(old[chosen])
            news.append(new[chosen])
    for scope, (olds, news) in judged.items():
        if sum(part.size for part in olds):
            was, is_ = Errors.of(np.concatenate(olds)), Errors.of(np.concatenate(news))
            change = term or "full form"
            yield Comparison(device.id, engine, group.label, scope, change, was, is_)
