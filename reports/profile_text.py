"""A profile as tables: its errors on unseen runs, its parameters, its measured roofs."""

from __future__ import annotations

from roofcast.hardware.profile import Profile
from roofcast.reports import units, words
from roofcast.reports.tables import Column, Table


def errors(profile: Profile) -> Table:
    """A row for each way in which runs were kept from the fit."""
    found = profile.held_out
    coverage = [
        units.UNKNOWN if each.coverage is None else units.percent(each.coverage) for each in found
    ]
    return Table(
        (
            Column("unseen", [each.scheme for each in found], right=False),
            Column("runs", [str(each.runs) for each in found]),
            Column("median error", [units.percent(each.median_ape) for each in found]),
            Column("p90", [units.percent(each.p90_ape) for each in found]),
            Column("bias", [words.signed(each.signed_median) for each in found]),
            Column("in 80 % band", coverage),
        )
    )


def parameters(profile: Profile) -> Table:
    """Every parameter with its error, origin and source."""
    items = profile.parameters.items()
    return Table(
        (
            Column("parameter", [name for name, _ in items], right=False),
            Column("value", [f"{each.value:.4g}" for _, each in items]),
            Column("unit", [each.unit for _, each in items], right=False),
            Column("± 1 s.e.", [_spread(each.standard_error) for _, each in items]),
            Column("origin", [each.origin for _, each in items], right=False, rank=1),
            Column("source", ["; ".join(each.sources) for _, each in items], right=False, rank=2),
        )
    )


def roof_words(name: str) -> str:
    """A measured roof's name in words.

    >>> roof_words("memory_bandwidth_bytes_per_s"), roof_words("peak_flops_per_s.fp32")
    ('memory bandwidth', 'peak fp32')
    """
    base, _, dtype = name.partition(".")
    return f"peak {dtype}" if dtype else base.removesuffix("_bytes_per_s").replace("_", " ")


def roof_unit(name: str) -> str:
    """The unit of a measured roof, from its name."""
    return "B/s" if name.endswith("bytes_per_s") else "FLOP/s"


def _spread(standard_error: float | None) -> str:
    return units.UNKNOWN if standard_error is None else f"{standard_error:.2g}"
