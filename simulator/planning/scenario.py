"""Scenario files: a plan's whole question in TOML, so that it can be kept, rerun and compared.

Importing this module costs a pydantic import, so the command does it when it runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import InputError
from roofcast.hardware.validation import check, read_toml
from roofcast.simulator.api import find_device
from roofcast.simulator.memory_policy import Launch
from roofcast.simulator.models import load
from roofcast.simulator.planning import traffic
from roofcast.simulator.planning.asked import Asked, Options
from roofcast.simulator.planning.prices import Power, Price
from roofcast.simulator.planning.speculation import MTP, Speculation

Amount = Annotated[float, Field(allow_inf_nan=False)]
Ranks = list[Annotated[int, Field(ge=1)]]
OWN = "checkpoint"
"""The dtype that the checkpoint stores."""


class Table(BaseModel):
    """Any table of the file. Values are checked where they are used, with better words."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Range(Table):
    """Lengths between two ends, all equally often."""

    low: Amount
    high: Amount


class Skewed(Table):
    """Log-normal lengths."""

    mean: Amount
    p95: Amount


Length = Amount | Range | Skewed


class TrafficTable(Table):
    """Requests: a rate or users, and lengths; or all of it from a trace."""

    requests_per_s: Amount | None = None
    users: Amount | None = None
    input_tokens: Length | None = None
    output_tokens: Length | None = None
    trace: str | None = None
    prefix_hits: Amount = 0.0

    @model_validator(mode="after")
    def _one_source(self) -> TrafficTable:
        lengths = (self.input_tokens, self.output_tokens)
        if self.trace is None and None in lengths:
            raise ValueError("give input_tokens and output_tokens, or a trace")
        if self.trace is not None and lengths != (None, None):
            raise ValueError(
                "a trace has its own lengths; leave out input_tokens and output_tokens"
            )
        if self.trace is not None and self.requests_per_s is not None and self.users is not None:
            raise ValueError("give requests_per_s or users, one of the two")
        return self


class ObjectivesTable(Table):
    """Limits for a percentile of requests."""

    ttft_s: Amount | None = None
    tpot_s: Amount | None = None
    percentile: Amount = 95.0


class DeviceTable(Table):
    """A device to plan with, its price, and where it stands."""

    name: str
    rent_usd_per_hour: Amount | None = None
    purchase_usd: Amount | None = None
    years: Amount = 4.0
    network_gb_per_s: Annotated[float, Field(gt=0)] | None = None
    node_devices: Annotated[int, Field(ge=1)] | None = None
    peer_access: bool | None = None


class PowerTable(Table):
    """Electricity of bought devices."""

    usd_per_kwh: Amount = 0.12
    overhead: Amount = 1.3
    draw: Amount = 0.8


class SpeculationTable(Table):
    """Drafting: tokens a step, the chance that each is accepted, and by whom."""

    tokens: int
    acceptance: Amount
    draft: str = MTP


class OptionsTable(Table):
    """What to try; see planning/asked.py."""

    tensor: Ranks = [1, 2, 4, 8]
    pipeline: Ranks = [1, 2, 4]
    data: Ranks = [1, 2, 4, 8]
    expert: Ranks | None = None
    weight_dtypes: list[str] = [OWN]
    kv_dtypes: list[str] = [OWN]
    replica_devices: int = 8
    engine: str | None = None
    profile: str | None = None
    utilisation: Amount | None = None
    token_budget: int | None = None
    max_sequences: int | None = None
    speculation: SpeculationTable | None = None
    offload: Amount = 0.0
    disaggregated: bool = False


class Scenario(Table):
    """A whole file."""

    model: str
    rank: Literal["cost", "throughput", "latency"] = "cost"
    traffic: TrafficTable
    objectives: ObjectivesTable = ObjectivesTable()
    devices: Annotated[list[DeviceTable], Field(min_length=1)]
    power: PowerTable = PowerTable()
    options: OptionsTable = OptionsTable()


def read(path: Path) -> Scenario:
    """A scenario file; FileFormatError says what is wrong and where."""
    return check(Scenario, read_toml(path), path)


def checked(document: Mapping[str, Any], name: str = "options") -> Scenario:
    """A scenario from options, under the same rules."""
    return check(Scenario, document, name)


def asked(scenario: Scenario, folder: Path | None = None) -> Asked:
    """The question of a scenario; paths in it are relative to `folder`."""
    devices, prices = [], {}
    for table in scenario.devices:
        device = _device(table, folder)
        devices.append(device)
        price = _price(table)
        if price is not None:
            prices[device.id] = price
    names = [device.id for device in devices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"device {twice} is named twice")
    return Asked(
        model=load(_path(scenario.model, folder)),
        traffic=_traffic(scenario.traffic, folder),
        objectives=traffic.Objectives(**dict(scenario.objectives)),
        devices=tuple(devices),
        options=_options(scenario.options, folder),
        prices=prices,
        power=Power(**dict(scenario.power)),
        rank=scenario.rank,
    )


def _path(name: str, folder: Path | None) -> str:
    """A name, or a path beside the scenario where one of that name is there."""
    beside = None if folder is None else folder / name
    return str(beside) if beside is not None and beside.exists() else name


def _traffic(table: TrafficTable, folder: Path | None) -> traffic.Traffic:
    if table.trace is not None:
        found = traffic.from_trace(_path(table.trace, folder), table.prefix_hits)
        if table.users is not None:
            return replace(found, rate_per_s=None, users=table.users)
        return replace(found, rate_per_s=table.requests_per_s or found.rate_per_s)
    return traffic.Traffic(
        prompt=_lengths(table.input_tokens),
        reply=_lengths(table.output_tokens),
        rate_per_s=table.requests_per_s,
        users=table.users,
        prefix_hits=table.prefix_hits,
    )


def _lengths(length: Length | None) -> traffic.Lengths:
    if isinstance(length, Range):
        return traffic.uniform(length.low, length.high)
    if isinstance(length, Skewed):
        return traffic.lognormal(length.mean, length.p95)
    return traffic.Lengths(math.nan if length is None else length)


def _device(table: DeviceTable, folder: Path | None) -> Accelerator:
    device = find_device(_path(table.name, folder))
    changes: dict[str, Any] = {}
    if table.network_gb_per_s is not None:
        changes["network_bytes_per_s"] = table.network_gb_per_s * 1e9
    if table.node_devices is not None:
        changes["node_devices"] = table.node_devices
    if table.peer_access is not None:
        changes["peer_access"] = table.peer_access
    return replace(device, **changes) if changes else device


def _price(table: DeviceTable) -> Price | None:
    if table.rent_usd_per_hour is None and table.purchase_usd is None:
        return None
    return Price(table.rent_usd_per_hour, table.purchase_usd, table.years)


def _options(table: OptionsTable, folder: Path | None) -> Options:
    launch = Launch(table.utilisation, table.token_budget, table.max_sequences)
    drafted = table.speculation
    return Options(
        tensor=tuple(table.tensor),
        pipeline=tuple(table.pipeline),
        data=tuple(table.data),
        expert=None if table.expert is None else tuple(table.expert),
        weight_dtypes=tuple(None if name == OWN else name for name in table.weight_dtypes),
        kv_dtypes=tuple(None if name == OWN else name for name in table.kv_dtypes),
        replica_devices=table.replica_devices,
        engine=table.engine,
        profile=None if table.profile is None else _path(table.profile, folder),
        launch=launch,
        speculation=None if drafted is None else Speculation(**dict(drafted)),
        offload=table.offload,
        disaggregated=table.disaggregated,
    )


def to_toml(scenario: Scenario) -> str:
    """The file that reads back as the same scenario; what is at its default is left out."""
    document = scenario.model_dump(exclude_defaults=True)
    lines = [f"{key} = {_value(value)}" for key, value in document.items() if _plain(value)]
    for key, value in document.items():
        if isinstance(value, dict):
            lines += _table(key, value)
        elif isinstance(value, list) and not _plain(value):
            for item in value:
                lines += ["", f"[[{key}]]", *_pairs(item)]
    return "\n".join(lines) + "\n"


def _table(name: str, table: dict[str, Any]) -> list[str]:
    return ["", f"[{name}]", *_pairs(table)]


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items() if value is not None]


def _plain(value: object) -> bool:
    if isinstance(value, list):
        return all(_plain(item) for item in value)
    return not isinstance(value, dict)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}"
    return repr(value)
