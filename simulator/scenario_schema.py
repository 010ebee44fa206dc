"""The scenario of a file, checked strictly: unknown keys, wrong types and NaN are errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from roofcast.hardware.validation import check
from roofcast.simulator.scenario import Scenario


@cache
def _schema() -> type[BaseModel]:
    """A table with the fields of `Scenario`, so that there is one list of them."""
    hints = get_type_hints(Scenario)
    fields: dict[str, Any] = {
        each.name: (
            hints[each.name],
            ... if each.default is dataclasses.MISSING else each.default,
        )
        for each in dataclasses.fields(Scenario)
    }
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)
    return create_model("ScenarioTable", __config__=config, **fields)


def scenario_of(document: Mapping[str, Any], path: str | Path) -> Scenario:
    """A scenario from a table of a file; FileFormatError names the key that is wrong.

    Lengths may be plain numbers: input = 1000.
    """
    given = {
        key: str(value) if key in ("input", "output") and isinstance(value, int) else value
        for key, value in document.items()
    }
    return Scenario(**check(_schema(), given, path).model_dump())
