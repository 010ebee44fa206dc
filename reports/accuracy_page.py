"""The accuracy page as Markdown: tables of held-out errors by scheme and group, and the worst cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from roofcast.calibrate.serving_points.accuracy import Cell, FamilyAccuracy
from roofcast.calibrate.serving_points.errors import Errors
from roofcast.reports import units

_INTRODUCTION = """\
# Accuracy on public serving points

Written by `roofcast calibrate serving POINTS.csv --page docs/accuracy.md`; don't edit it by hand.

Every figure is of points that the fit behind it did not see. A family is a set of engines fitted
together; its numbers are shared by all its devices unless a profile says otherwise. Errors are absolute
percentages of what was measured; the bias is the median of the signed error. The roofline alone reaches
full bandwidth and peak and pays for nothing else. The last column is the share of points within 80 %
intervals made of the errors of other groups; groups of one device err alike, so that few groups say
little about it. Points that no physics allows (faster than prompts at peak and bytes at full bandwidth)
are kept out of fits and of intervals, but counted here; so are those of speculative decoding.
"""


def accuracy_page(families: Sequence[FamilyAccuracy]) -> str:
    """The page, one section a family."""
    return "\n".join([_INTRODUCTION, *(_section(family) for family in families)])


def _section(family: FamilyAccuracy) -> str:
    lines = [
        f"## {_heading(family)}",
        "",
        f"{family.points:,} points; family `{family.name}` in calibrate/serving_points/families.toml.",
        "",
        *_rows(("held out", "metric"), [((s.name, s.metric), s.errors) for s in family.schemes]),
    ]
    for name, found in family.groups.items():
        lines += ["", *_rows((name,), [((cell.label,), cell.errors) for cell in found])]
    if family.worst:
        lines += ["", "Worst cells:", "", *map(_worst, family.worst)]
    return "\n".join([*lines, ""])


def _heading(family: FamilyAccuracy) -> str:
    """The engines, the device where there is one only, and the years."""
    devices = [cell.label for cell in family.groups.get("device", ())]
    where = f" on {devices[0]}" if len(devices) == 1 else ""
    return f"{', '.join(family.engines)}{where}{f', {family.years}' if family.years else ''}"


def _rows(heads: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], Errors]]) -> list[str]:
    columns = (*heads, "points", "median", "mean", "p90", "bias", "in 80 % interval")
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for labels, errors in rows:
        lines.append(f"| {' | '.join((*labels, *_cells(errors)))} |")
    return lines


def _cells(errors: Errors) -> tuple[str, ...]:
    fractions = (errors.median_ape, errors.mean_ape, errors.p90_ape, errors.signed_median)
    held = "" if math.isnan(errors.coverage) else units.percent(errors.coverage)
    return (f"{errors.rows:,}", *(units.percent(value) for value in fractions), held)


def _worst(cell: Cell) -> str:
    bias = units.percent(cell.errors.signed_median)
    return f"- {cell.label}: {cell.errors.rows} points, bias {bias}; {cell.cause}"
