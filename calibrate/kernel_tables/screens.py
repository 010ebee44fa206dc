"""What is left out of a table before a fit, with the reason and the count."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from roofcast.calibrate.kernel_tables.table import Column, Table

Mask = NDArray[np.bool_]

MOST_TOKENS: Final = 4096
_WIDEST_GROUP: Final = (
    32  # query heads per KV head: no known model has more, and one is another kernel
)
_HEAD_DIMS: Final = (64, 128)
_LEAST_INNER: Final = 128
_FAIR_PART: Final = 0.3
_LEAST_EXPERT_COLUMNS: Final = 64


@dataclass(frozen=True)
class Screened:
    """Rows fit for use, and how many were left out for which reason."""

    table: Table
    dropped: Mapping[str, int] = field(default_factory=dict)

    def without(self, bad: Column, reason: str) -> Screened:
        """Leave out rows; a reason that fits none isn't mentioned."""
        count = int(np.count_nonzero(bad))
        if not count:
            return self
        dropped = {**self.dropped, reason: self.dropped.get(reason, 0) + count}
        return replace(self, table=self.table.where(~np.asarray(bad, dtype=bool)), dropped=dropped)

    @property
    def note(self) -> str:
        """The reasons in one line.

        >>> Screened(Table({}), {"broken": 3}).note
        'left out: 3 broken'
        """
        if not self.dropped:
            return ""
        return "left out: " + "; ".join(f"{count} {why}" for why, count in self.dropped.items())


@cache
def _problems() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    text = resources.files("roofcast.calibrate.kernel_tables").joinpath("problems.toml")
    return tomllib.loads(text.read_text("utf-8"))


def screened(kind: str, table: Table, public: bool = True) -> Screened:
    """Leave out what is known to be broken in the public tables, and shapes unlike any model's."""
    result = Screened(table)
    for entry in _problems()["broken"]:
        if public and entry["table"] == kind:
            result = result.without(_matches(result.table, entry), entry["reason"])
    result = result.without(~(result.table["latency_s"] > 0), "without a latency")
    shaped = _SHAPES.get(kind)
    return shaped(result) if shaped else result


def repeats(kind: str, table: Table) -> str | None:
    """Why these rows may be read from the L2 cache; None where the table defeats it."""
    return _said("repeats", kind, table)


def remark(kind: str, table: Table) -> str | None:
    """What a reader should know of rows that look wrong but stay; None for most."""
    return _said("remarks", kind, table)


def _said(list_: str, kind: str, table: Table) -> str | None:
    for entry in _problems()[list_]:
        if entry["table"] == kind and len(table) and _matches(table, entry).all():
            return str(entry["reason"])
    return None


def newest(rows: Screened) -> Screened:
    """Only the newest version that measured a fair part: a later one may hold a few shapes more."""
    versions, counts = np.unique(rows.table["version"], return_counts=True)
    if len(versions) < 2:
        return rows
    whole = versions[counts >= _FAIR_PART * counts.max()].tolist()
    chosen = max(whole, key=_version_key)
    return rows.without(rows.table["version"] != chosen, f"of versions other than {chosen}")


def usual_kernel(rows: Screened) -> Screened:
    """Only the kernel that most rows use: an engine picks others for shapes few models have."""
    if "kernel_source" not in rows.table.columns or not len(rows.table):
        return rows
    names, counts = np.unique(rows.table["kernel_source"], return_counts=True)
    usual = names[np.argmax(counts)]
    return rows.without(rows.table["kernel_source"] != usual, f"of kernels other than {usual}")


def _version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Order of versions: numbers by value, a release candidate before its release.

    >>> sorted(["1.3.0", "1.3.0rc20", "1.3.0rc5", "0.24.0"], key=_version_key)
    ['0.24.0', '1.3.0rc5', '1.3.0rc20', '1.3.0']
    """
    text = version.replace("rc", ".-1.").replace("post", ".1.").replace("dev", ".-2.")
    parts = [part for part in text.split(".") if part]
    numbers = [(int(p), 0, "") if p.lstrip("-").isdigit() else (0, 1, p) for p in parts]
    return (*numbers, (0, 0, ""))


def _matches(table: Table, entry: Mapping[str, Any]) -> Mask:
    chosen = np.ones(len(table), dtype=bool)
    for name, value in entry.items():
        if name not in ("table", "reason"):
            chosen &= table.columns[name] == value if name in table.columns else False
    return chosen


def _gemm_shapes(rows: Screened) -> Screened:
    rows = rows.without(rows.table["m"] > MOST_TOKENS, f"above {MOST_TOKENS} rows")
    return rows.without(rows.table["k"] < _LEAST_INNER, f"with an inner size below {_LEAST_INNER}")


def _attention_shapes(rows: Screened) -> Screened:
    group = rows.table["heads"] / rows.table["kv_heads"]
    unlike = (group > _WIDEST_GROUP) | (group < 2)
    rows = rows.without(unlike, f"with one or over {_WIDEST_GROUP} query heads a KV head")
    other = ~np.isin(rows.table["head_dim"], _HEAD_DIMS)
    return rows.without(other, "with head sizes other than 64 and 128")


def _expert_shapes(rows: Screened) -> Screened:
    table = rows.table
    rows = rows.without(table["tokens"] > MOST_TOKENS, f"above {MOST_TOKENS} tokens")
    narrow = rows.table["inter"] / rows.table["tp"] < _LEAST_EXPERT_COLUMNS
    rows = rows.without(narrow, f"with under {_LEAST_EXPERT_COLUMNS} expert columns a rank")
    known = np.char.startswith(rows.table["distribution"], "power_law")
    if not np.any(~known):
        return rows
    return rows.without(
        rows.table["distribution"] != "balanced", "with skewed routing (five draws)"
    )


_SHAPES: Final = {
    "gemm": _gemm_shapes,
    "attention": _attention_shapes,
    "experts": _expert_shapes,
}
