"""A forecast as labelled data: one row a point, names and units as in the contracts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from roofcast.simulator.prediction import Forecast

if TYPE_CHECKING:
    import pandas
    import xarray

COLUMNS = (
    "device",
    "engine",
    "profile",
    "model",
    "devices",
    "batch",
    "context",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "tokens_per_s",
    "tokens_per_s_per_user",
    "tokens_per_s_per_device",
    "flops",
    "hbm_bytes",
    "weight_bytes",
    "kv_read_bytes",
    "kv_write_bytes",
    "arithmetic_intensity",
    "bound",
    "mbu",
    "mfu",
    "memory_bytes",
    "fits",
)
_SCALARS = ("device", "engine", "profile", "model", "devices")


def columns(forecast: Forecast) -> dict[str, Any]:
    """Every column of the contract: scalars as they are, the rest broadcast to the points."""
    values: dict[str, Any] = {
        "device": forecast.device.id,
        "engine": forecast.profile.engine,
        "profile": forecast.profile.name,
        "model": forecast.work.architecture.name,
        "devices": forecast.devices,
        "memory_bytes": forecast.memory.total_bytes,
        "fits": forecast.memory.fits,
    }
    shape = forecast.step_time_s.shape
    for name in COLUMNS:
        if name not in values:
            values[name] = getattr(forecast, name)
        if name not in _SCALARS:
            values[name] = np.broadcast_to(values[name], shape)
    return {name: values[name] for name in COLUMNS}


def rows(forecast: Forecast) -> list[dict[str, Any]]:
    """One plain dictionary a point, in order, ready for JSON or CSV; NaN becomes None."""
    wide = columns(forecast)
    flat = {
        name: [value] * forecast.step_time_s.size
        if name in _SCALARS
        else [_plain(name, item) for item in np.ravel(value).tolist()]
        for name, value in wide.items()
    }
    return [dict(zip(flat, point, strict=True)) for point in zip(*flat.values(), strict=True)]


def _plain(name: str, item: Any) -> Any:
    if name in ("batch", "context"):
        return int(item)
    return None if isinstance(item, float) and math.isnan(item) else item


_SHOWN = {
    "batch": "{:,}",
    "context": "{:,}",
    "step_time_s": "{:.4g}",
    "step_time_low_s": "{:.4g}",
    "step_time_high_s": "{:.4g}",
    "tokens_per_s": "{:,.1f}",
    "tokens_per_s_per_user": "{:,.1f}",
    "bound": "{}",
    "mbu": "{:.2f}",
    "mfu": "{:.3f}",
    "memory_bytes": "{:.4g}",
    "fits": "{}",
}
_MOST_ROWS = 60


def to_text(forecast: Forecast) -> str:
    """What was forecast, then a row a point; long grids are cut in the middle."""
    cells = [list(_SHOWN), *_cells(forecast)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_SHOWN))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([_subject(forecast), *lines])


def to_html(forecast: Forecast) -> str:
    """The same as an HTML table, every text escaped."""
    from html import escape

    head = "".join(f'<th scope="col">{name}</th>' for name in _SHOWN)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in _cells(forecast)
    )
    return (
        f"<table><caption>{escape(_subject(forecast))}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _subject(forecast: Forecast) -> str:
    wide = columns(forecast)
    return f"{wide['model']} on {wide['devices']} x {wide['device']}, profile {wide['profile']}"


def _cells(forecast: Forecast) -> list[list[str]]:
    """The shown columns of every point as text; a dash where a number is unknown."""
    found = [
        ["–" if row[name] is None else form.format(row[name]) for name, form in _SHOWN.items()]
        for row in rows(forecast)
    ]
    if len(found) <= _MOST_ROWS:
        return found
    return [*found[: _MOST_ROWS // 2], ["…"] * len(_SHOWN), *found[-_MOST_ROWS // 2 :]]


def to_xarray(forecast: Forecast) -> xarray.Dataset:
    """The points as a dataset over batch and context, or over `point` where they are not a grid."""
    import xarray

    wide = columns(forecast)
    shape = forecast.step_time_s.shape
    on_grid = len(shape) == 2 and forecast.batch.shape[1] == 1 and forecast.context.shape[0] == 1
    dims = ("batch", "context") if on_grid else tuple(f"point_{i}" for i in range(len(shape)))
    if on_grid:
        coords = {"batch": forecast.batch[:, 0], "context": forecast.context[0]}
    else:
        coords = {name: (dims, wide[name]) for name in ("batch", "context")}
    data = {
        name: (dims, value)
        for name, value in wide.items()
        if name not in (*_SCALARS, "batch", "context")
    }
    return xarray.Dataset(data, coords, {name: wide[name] for name in _SCALARS})


def to_dataframe(forecast: Forecast) -> pandas.DataFrame:
    """One row a point."""
    import pandas

    return pandas.DataFrame(rows(forecast), columns=list(COLUMNS))
