"""Where kernel tables lie and how they are read: tidy CSV, or aiconfigurator-core's parquet layout."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from roofcast.calibrate.kernel_tables.table import Column, Table, read_csv
from roofcast.hardware.accelerator import Accelerator
from roofcast.hardware.errors import FileFormatError, InputError

_NAMED: Final = "aiconfigurator-core"
PUBLIC: Final = "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0)"
_ELEMENT_BYTES: Final = 2  # collectives were timed in half and bfloat16


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of kernel table, as kinds.toml describes it."""

    name: str
    csv: str
    parquet: tuple[str, ...]
    shape: tuple[str, ...]
    rename: Mapping[str, str]
    kind: str | None = None


@cache
def _described() -> dict[str, Any]:
    text = resources.files("roofcast.calibrate.kernel_tables").joinpath("kinds.toml")
    return tomllib.loads(text.read_text("utf-8"))


def kinds() -> Mapping[str, Kind]:
    """The kinds of tables, by name."""
    return {
        name: Kind(name, entry["csv"], tuple(entry["parquet"]), tuple(entry["shape"]),
                   entry["rename"], entry.get("kind"))
        for name, entry in _described()["tables"].items()
    }  # fmt: skip


def table_name(device: str) -> str:
    """What the tables call a device of the catalogue: a name of their own, else its id."""
    devices: dict[str, str] = _described()["devices"]
    return devices.get(device, device)


def l2_bytes(device: Accelerator) -> float | None:
    """The L2 cache of a device: its spec's, else assumed for a device with tables, else unknown."""
    assumed: dict[str, int] = _described()["l2_bytes"]
    return device.l2_bytes or assumed.get(device.id)


def devices() -> tuple[str, ...]:
    """Devices of the catalogue that public kernel tables exist for."""
    return tuple(_described()["devices"])


def tabled(directory: str | Path) -> tuple[str, ...]:
    """Those of `devices` that a folder has tables of; InputError where it has none of any."""
    path = Path(directory)
    _must_be_folder(path)
    found = tuple(device for device in devices() if Folder(path, table_name(device)).own_files())
    if not found:
        raise InputError(
            f"{path} holds no kernel tables of a known device: {_looked_for('DEVICE')}"
        )
    return found


def usual_source(directory: str | Path) -> str:
    """Who measured a folder's tables if nobody says: aiconfigurator-core, where it is its layout."""
    path = Path(directory)
    return PUBLIC if any(path.glob("*/*/*/*/*.parquet")) else path.resolve().name


def _must_be_folder(path: Path) -> None:
    if not path.is_dir():
        raise InputError(f"no folder of kernel tables at {path}")


def _looked_for(gpu: str) -> str:
    return f"neither gemm_{gpu}.csv.gz nor {gpu}/**/gemm_perf.parquet"


@dataclass(frozen=True)
class Folder:
    """A folder of kernel tables in either layout, of one device; `source` is who measured them."""

    path: Path
    gpu: str
    source: str = PUBLIC
    _tables: dict[str, Table | None] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, directory: str | Path, device: str, source: str = PUBLIC) -> Folder:
        """The tables of a device; InputError where the folder holds none of them."""
        folder = cls(Path(directory), table_name(device), source)
        _must_be_folder(folder.path)
        if not folder.own_files():
            raise InputError(
                f"{folder.path} holds no kernel tables of {folder.gpu}: {_looked_for(folder.gpu)}"
            )
        return folder

    @property
    def public(self) -> bool:
        """Whether these are the tables whose mistakes problems.toml lists."""
        return self.source.startswith(_NAMED)

    def own_files(self) -> list[Path]:
        """Files that hold kernels of this device alone; tables of all devices don't count."""
        own = [kind for kind in kinds().values() if "{gpu}" in kind.csv]
        csvs = [path for kind in own if (path := self._csv(kind)).exists()]
        return [*csvs, *(path for kind in own for path in self._parquet(kind))]

    def read(self, name: str) -> Table | None:
        """The table of one kind; None where there is no file, or no row of the device in it."""
        if name not in self._tables:
            self._tables[name] = self._read(kinds()[name])
        return self._tables[name]

    def _read(self, kind: Kind) -> Table | None:
        if self._csv(kind).exists():
            names = set(_described()["names"])
            table = _of_gpu(read_csv(self._csv(kind), names), self.gpu)
        else:
            table = _joined([_read_parquet(path, kind, self.gpu) for path in self._parquet(kind)])
        if kind.kind is not None and "kind" in table.columns:
            table = table.matching(kind=kind.kind)
        return table if len(table) else None

    def _csv(self, kind: Kind) -> Path:
        """The CSV of a kind, packed or not; the name of the packed one where there is neither."""
        packed = self.path / kind.csv.format(gpu=self.gpu)
        plain = packed.with_suffix("")
        return plain if plain.exists() else packed

    def _parquet(self, kind: Kind) -> list[Path]:
        root = self.path / self.gpu
        return sorted(path for file in kind.parquet for path in root.glob(f"*/*/*/{file}"))


def _of_gpu(table: Table, gpu: str) -> Table:
    return table.matching(gpu=gpu) if "gpu" in table.columns else table


def _joined(tables: list[Table]) -> Table:
    """Rows of several files, with the columns that all of them have."""
    if not tables:
        return Table({"latency_s": np.zeros(0)})
    shared = set.intersection(*(set(table.columns) for table in tables))
    return Table({name: np.concatenate([t[name] for t in tables]) for name in sorted(shared)})


def _read_parquet(path: Path, kind: Kind, gpu: str) -> Table:
    """One file of the parquet layout under the names and units of the tidy layout."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise InputError(
            f"{path} is parquet, which needs pyarrow: pip install 'roofcast[parquet]'"
        ) from None
    try:
        raw = parquet.read_table(path)
    except (ArrowInvalid, OSError) as error:
        raise FileFormatError(f"kernel table {path}: {error}") from None
    columns: dict[str, Column] = {}
    names = set(_described()["names"])
    for name in raw.column_names:
        short = kind.rename.get(name, name)
        column = raw.column(name).to_numpy()
        columns[short] = column.astype(str) if short in names else column
    columns.update(_tidied(columns, path, gpu))
    return Table(columns)


def _tidied(columns: Mapping[str, Column], path: Path, gpu: str) -> Iterator[tuple[str, Column]]:
    """What the parquet layout says in its path or in other units."""
    if "latency" not in columns:
        raise FileFormatError(f"kernel table {path} has no column latency")
    rows = len(columns["latency"])
    backend, version = path.parts[-3], path.parts[-2]
    for name, value in (("gpu", gpu), ("backend", backend), ("version", version)):
        yield name, np.full(rows, value)
    yield "latency_s", columns["latency"].astype(float) * 1e-3
    if "isl" in columns and "step" in columns:
        yield "kv_tokens", columns["isl"] + columns["step"]
    if "message_size" in columns:
        yield "message_bytes", columns["message_size"] * _ELEMENT_BYTES
        yield "op", np.full(rows, "custom_all_reduce")
        if "impl" not in columns:
            yield "impl", np.full(rows, backend)
