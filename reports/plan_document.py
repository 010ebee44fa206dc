"""Options of `roofcast plan` as the document that a scenario file holds."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from roofcast.hardware.catalog import find
from roofcast.hardware.errors import InputError
from roofcast.reports.ranges import numbers
from roofcast.simulator.planning import prices

_TRAFFIC = {"rate": "requests_per_s", "users": "users", "trace": "trace", "hits": "prefix_hits"}
_OBJECTIVES = {"ttft": "ttft_s", "tpot": "tpot_s", "percentile": "percentile"}
_SIZES = {"tp": "tensor", "pp": "pipeline", "ep": "expert", "dp": "data"}
_LISTS = {"weight_dtype": "weight_dtypes", "kv_dtype": "kv_dtypes"}
_OPTIONS = {
    "replica": "replica_devices",
    "engine": "engine",
    "profile": "profile",
    "offload": "offload",
    "disaggregate": "disaggregated",
    "token_budget": "token_budget",
}


def document(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario `base` with the options that were given in place of what it says."""
    made = copy.deepcopy(dict(base))
    set_ = {name: value for name, value in given.items() if value is not None}
    traffic = made.setdefault("traffic", {})
    if "rate" in set_ and "users" in set_:
        raise InputError("give --rate or --users, not both")
    if "rate" in set_:
        traffic.pop("users", None)
    if "users" in set_:
        traffic.pop("requests_per_s", None)
    _move(set_, _TRAFFIC, traffic)
    for option, key in (("input", "input_tokens"), ("output", "output_tokens")):
        if option in set_:
            traffic[key] = _length(set_[option], option)
    _move(set_, _OBJECTIVES, made.setdefault("objectives", {}))
    _options(made.setdefault("options", {}), set_)
    _devices(made, set_)
    if "kwh" in set_:
        made.setdefault("power", {})["usd_per_kwh"] = set_["kwh"]
    if "rank" in set_:
        made["rank"] = set_["rank"]
    return made


def _move(set_: Mapping[str, Any], names: Mapping[str, str], table: dict[str, Any]) -> None:
    table |= {key: set_[option] for option, key in names.items() if option in set_}


def _length(text: str, name: str) -> float | dict[str, float]:
    """A length as it is typed into one as the file writes it.

    >>> _length("1000", "input"), _length("200:4000", "input"), _length("1000,p95=3000", "input")
    (1000.0, {'low': 200.0, 'high': 4000.0}, {'mean': 1000.0, 'p95': 3000.0})
    """
    first, _, rest = text.replace(" ", "").partition(",")
    low, colon, high = first.partition(":")
    try:
        if rest.startswith("p95=") and not colon:
            return {"mean": float(first), "p95": float(rest.removeprefix("p95="))}
        if colon and not rest:
            return {"low": float(low), "high": float(high)}
        if not rest:
            return float(first)
    except ValueError:
        pass
    raise InputError(
        f"--{name} {text!r} is not a length; write 1000, 200:4000 (uniform) or 1000,p95=3000"
    )


def _options(table: dict[str, Any], set_: Mapping[str, Any]) -> None:
    _move(set_, _OPTIONS, table)
    for option, key in _SIZES.items():
        if option in set_:
            table[key] = numbers(set_[option], option)
    for option, key in _LISTS.items():
        if option in set_:
            table[key] = [name.strip() for name in set_[option].split(",")]
    if "speculate" in set_:
        if "acceptance" not in set_:
            raise InputError("--speculate needs --acceptance: the chance that a draft is right")
        table["speculation"] = {"tokens": set_["speculate"], "acceptance": set_["acceptance"]}
        if "draft" in set_:
            table["speculation"]["draft"] = set_["draft"]
    elif "acceptance" in set_ or "draft" in set_:
        raise InputError("--acceptance and --draft go with --speculate")


def _devices(made: dict[str, Any], set_: Mapping[str, Any]) -> None:
    """Devices with their prices; those of a scenario keep what it says about them."""
    if "devices" in set_:
        known = {table["name"]: table for table in made.get("devices", [])}
        names = [name.strip() for text in set_["devices"] for name in text.split(",")]
        made["devices"] = [known.get(name, {"name": name}) for name in names]
    tables = made.get("devices", [])
    if not tables:
        raise InputError("name at least one device to plan with: --device h100-sxm,h200-sxm")
    for table in tables:
        if "network" in set_:
            table["network_gb_per_s"] = set_["network"]
    for text in set_.get("price", []):
        _priced(tables, *prices.parse(text))


def _priced(tables: list[dict[str, Any]], name: str, price: prices.Price) -> None:
    wanted = find(name).id
    table = next((each for each in tables if find(each["name"]).id == wanted), None)
    if table is None:
        raise InputError(f"--price names {name}, which is not among the devices to plan with")
    for key in ("rent_usd_per_hour", "purchase_usd", "years"):
        table.pop(key, None)
    if price.rent_usd_per_hour is not None:
        table["rent_usd_per_hour"] = price.rent_usd_per_hour
    else:
        table |= {"purchase_usd": price.purchase_usd, "years": price.years}
