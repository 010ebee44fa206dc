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


def roof(name: str, value: float) -> str:
    """A measured roof with what it is a roof of.

    >>> roof("memory_bandwidth_bytes_per_s", 21.3e9), roof("peak_flops_per_s.fp32", 3.1e11)
    ('21.3 GB/s from memory', '310 GFLOP/s in fp32')
    """
    link = "in" if "." in name else "from"
    return f"{roof_value(name, value)} {link} {roof_name(name)}"


def roof_name(name: str) -> str:
    """What a roof is a roof of: a dtype, or a kind of memory."""
    base, _, dtype = name.partition(".")
    return dtype or base.removesuffix("_bytes_per_s").removesuffix("_bandwidth").replace("_", " ")


def roof_value(name: str, value: float) -> str:
    """A roof's height in its unit."""
    return units.scaled(value, "FLOP/s" if "." in name else "B/s")


def _spread(standard_error: float | None) -> str:
    return units.UNKNOWN if standard_error is None else f"{standard_error:.2g}"
