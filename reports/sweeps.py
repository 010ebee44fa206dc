"""What a sweep runs at each point, and what it shows of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofcast.hardware.errors import CapacityError, unknown
from roofcast.reports import serving_text, units
from roofcast.reports.tables import Column, Table
from roofcast.simulator.results_store import Result
from roofcast.simulator.scenario import simulate
from roofcast.simulator.scenario_schema import scenario_of
from roofcast.simulator.sweep import Runner
from roofcast.simulator.sweep_file import Sweep


@dataclass(frozen=True, slots=True)
class Shown:
    """A column: a number of the result, how it is written, how early it goes where space is short."""

    name: str
    write: Callable[[Any], str]
    rank: int = 0

    def cell(self, result: Mapping[str, Any]) -> str:
        """Its text in one row."""
        value = result.get(self.name)
        return units.UNKNOWN if value is None else self.write(value)


@dataclass(frozen=True, slots=True)
class Kind:
    """What one `run` of a sweep file does: check a document, run it, show columns of the result."""

    check: Callable[[Mapping[str, Any], str | Path], object]
    run: Runner
    shown: Mapping[str, Shown]


def run_simulation(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """One scenario simulated: what `roofcast simulate --json` prints."""
    return serving_text.describe(simulate(scenario_of(document, "scenario")))


def run_plan(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """One question planned: the best deployment, as `roofcast plan --json` prints it."""
    from roofcast.reports import plan_text
    from roofcast.simulator.planning import plan, scenario

    found = plan.plan(scenario.asked(scenario.checked(document)))
    if not found.deployments:
        raise CapacityError(plan_text.unreachable(found))
    described = plan_text.describe(found, 1)
    return {"tried": described["tried"], **described["deployments"][0]}


def _check_plan(document: Mapping[str, Any], path: str | Path) -> object:
    from roofcast.simulator.planning import scenario

    return scenario.checked(document, str(path))


KINDS: Mapping[str, Kind] = {
    "simulate": Kind(
        scenario_of,
        run_simulation,
        {
            "output tok/s": Shown("output_tokens_per_s", units.significant),
            "requests/s": Shown("requests_per_s", units.significant, rank=2),
            "good": Shown("good_share", units.percent),
            "TTFT p50": Shown("ttft_s.p50", units.seconds, rank=1),
            "TTFT p95": Shown("ttft_s.p95", units.seconds),
            "TPOT p50": Shown("tpot_s.p50", units.seconds, rank=1),
            "TPOT p95": Shown("tpot_s.p95", units.seconds),
            "KV": Shown("most_kv_use", units.percent, rank=3),
        },
    ),
    "plan": Kind(
        _check_plan,
        run_plan,
        {
            "best on": Shown("device", str),
            "replicas": Shown("replicas", units.significant),
            "devices": Shown("devices", units.significant),
            "batch": Shown("batch", units.significant, rank=2),
            "TTFT": Shown("ttft_s", units.seconds, rank=1),
            "TPOT": Shown("tpot_s", units.seconds, rank=1),
            "output tok/s": Shown("output_tokens_per_s", units.significant),
            "USD/h": Shown("usd_per_hour", units.significant),
            "USD/M tokens": Shown("usd_per_million_output_tokens", units.significant),
        },
    ),
}
"""By the `run` of a sweep file. Their runners are functions of a module: any worker imports them."""


def prepared(sweep: Sweep, path: Path) -> Kind:
    """The kind of a sweep whose points are all well formed.

    Raises UnknownNameError for what can't be run, FileFormatError for a point's first bad key.
    """
    if sweep.run not in KINDS:
        raise unknown("run", sweep.run, KINDS)
    for point in sweep.points:
        KINDS[sweep.run].check(point.document, path)
    return KINDS[sweep.run]


def table(results: Sequence[Result], kind: Kind) -> Table:
    """A row a point: what was varied, then what matters most; a refused point says why."""
    names = list(results[0].point) if results else []
    columns = [Column(n, [str(each.point[n]) for each in results]) for n in names]
    flat = [_flat(each.result) for each in results]
    for header, shown in kind.shown.items():
        columns.append(Column(header, [shown.cell(each) for each in flat], rank=shown.rank))
    if any(each.refused for each in results):
        columns.append(Column("", [each.refused or "" for each in results], right=False))
    return Table(tuple(columns))


def rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Flat rows for CSV: varied keys, then every number of the result, then the reason if refused."""
    return [{**each.point, **_flat(each.result), "refused": each.refused} for each in results]


def columns(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """All column names in order of appearance, the reason last."""
    names = dict.fromkeys(name for row in found for name in row if name != "refused")
    return [*names, "refused"]


def _flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested tables as dotted columns."""
    flat: dict[str, Any] = {}
    for name, each in value.items():
        if isinstance(each, Mapping):
            flat.update(_flat(each, f"{above}{name}."))
        else:
            flat[f"{above}{name}"] = each
    return flat
