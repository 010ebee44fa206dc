"""Tables cut into groups that share parameters: one kind, one format, one engine, one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from roofcast.calibrate.kernel_tables import screens, workloads
from roofcast.calibrate.kernel_tables.screens import Screened
from roofcast.calibrate.kernel_tables.sources import Folder, kinds
from roofcast.calibrate.kernel_tables.table import Table
from roofcast.calibrate.kernel_tables.workloads import FORMATS, Builder, Rows
from roofcast.hardware.errors import unknown
from roofcast.simulator.engines import Engine, find_engine

_FEWEST: Final = 40
_FEWEST_COLLECTIVE: Final = 8
_LARGEST_MESSAGE: Final = 64 * 2**20
_STATES: Final = {"gdn": "gated_delta_net", "kda": "kimi_delta_attention"}
_GRAPHED: Final = {
    "vllm": ("vllm_graph", "vllm_eager"),
    "sglang": ("sglang_graph", "sglang_eager"),
    "trtllm": ("trtllm", "TRTLLM"),
}
"""Implementations of all-reduce an engine decodes with, by preference: inside a CUDA graph first."""


@dataclass(frozen=True)
class Group:
    """Measured rows of kernels that share parameters named ``<kind>.<term><suffix>``."""

    table: str
    suffix: str
    rows: Rows
    note: str
    source: str
    cached: str | None = None

    @property
    def label(self) -> str:
        """What the group measures, for people."""
        return f"{self.table}{self.suffix}"


def groups(folder: Folder, engine: str) -> Iterator[Group]:
    """Every group of one engine; tables are read one after the other."""
    kernels = find_engine(engine)
    for name, cut in _CUTS.items():
        table = folder.read(name)
        if table is not None:
            yield from cut(folder, table.matching(backend=engine), kernels)


def engines_of(folder: Folder) -> tuple[str, ...]:
    """Engines that the folder's tables of this device measured."""
    found: set[str] = set()
    for name in ("gemm", "attention", "experts"):
        table = folder.read(name)
        if table is not None:
            found |= set(table.distinct("backend"))
    return tuple(sorted(found))


def _gemm(folder: Folder, table: Table, engine: Engine) -> Iterator[Group]:
    yield from _by_format(folder, "gemm", table, engine, workloads.gemm)


def _attention(folder: Folder, table: Table, engine: Engine) -> Iterator[Group]:
    windowed = table["window"] > 0
    for name, part in (("attention", ~windowed), ("window_attention", windowed)):
        yield from _by_cache(
            folder, ("attention", name), table.where(part), engine, workloads.attention
        )


def _latent(folder: Folder, table: Table, engine: Engine) -> Iterator[Group]:
    yield from _by_cache(folder, ("latent", "latent_attention"), table, engine, workloads.latent)


def _by_cache(
    folder: Folder, names: tuple[str, str], table: Table, engine: Engine, build: Builder
) -> Iterator[Group]:
    """One group for each KV dtype."""
    kind, operator = names
    for dtype in table.distinct("kv_dtype"):
        stored = _format(dtype, kind)
        rows = _prepared(folder, kind, table.matching(kv_dtype=dtype))
        yield from _group(folder, kind, f".{operator}.{stored}", rows, (build, stored, engine))


def _absorbed(folder: Folder, table: Table, engine: Engine) -> Iterator[Group]:
    for dtype in table.distinct("dtype"):
        rows = screens.newest(
            screens.screened("absorbed", table.matching(dtype=dtype), folder.public)
        )
        both = Screened(_summed(rows.table, "op", ("heads", "tokens")), rows.dropped)
        suffix = f".kv_b_absorb.{_format(dtype, 'absorbed')}"
        yield from _group(folder, "absorbed", suffix, both, (workloads.absorbed, dtype, engine))


def _format(dtype: str, kind: str) -> str:
    """Our name of a table's format; UnknownNameError for one that no forecast has."""
    if dtype not in FORMATS:
        raise unknown(f"dtype in the table of {kind}", dtype, FORMATS)
    return FORMATS[dtype]


def _experts(folder: Folder, table: Table, engine: Engine) -> Iterator[Group]:
    yield from _by_format(folder, "experts", table, engine, workloads.experts)


def _by_format(
    folder: Folder, kind: str, table: Table, engine: Engine, build: Builder
) -> Iterator[Group]:
    """One group for each weight format that a checkpoint can have."""
    for dtype in table.distinct("dtype"):
        if dtype in FORMATS:
            rows = _prepared(folder, kind, table.matching(dtype=dtype))
            yield from _group(folder, kind, f".{FORMATS[dtype]}", rows, (build, dtype, engine))


def _state(folder: Folder, table: Table, engine: Engine) -> Iterator[Group]:
    """Convolution and update of one shape are two rows: together they are what a step runs."""
    for family, name in _STATES.items():
        measured = table.matching(family=family, phase="generation")
        if not len(measured):
            continue
        rows = screens.newest(screens.screened("state", measured, folder.public))
        shape = ("model_name", "num_v_heads", "batch")
        both = Screened(_summed(rows.table, "kernel_source", shape), rows.dropped)
        yield from _group(folder, "state", f".{name}", both, (workloads.state, name, engine))


def _collective(folder: Folder, table: Table, engine: Engine) -> Iterator[Group]:
    table = table.matching(op="custom_all_reduce")
    known = table.distinct("impl")
    impl = next((name for name in _GRAPHED.get(engine.name, ()) if name in known), None)
    if impl is None:
        return
    table = table.matching(impl=impl)
    for ranks in table.distinct("n_gpu"):
        rows = screens.newest(
            screens.screened("collective", table.matching(n_gpu=ranks), folder.public)
        )
        rows = rows.without(rows.table["message_bytes"] > _LARGEST_MESSAGE, "messages above 64 MiB")
        yield from _group(
            folder,
            "collective",
            f".all_reduce.{int(ranks)}",
            rows,
            (workloads.collective, "", engine),
        )


_CUTS: Final = {
    "gemm": _gemm,
    "attention": _attention,
    "latent": _latent,
    "absorbed": _absorbed,
    "experts": _experts,
    "state": _state,
    "collective": _collective,
}


def _prepared(folder: Folder, kind: str, table: Table) -> Screened:
    return screens.usual_kernel(screens.newest(screens.screened(kind, table, folder.public)))


def _summed(table: Table, part: str, shape: tuple[str, ...]) -> Table:
    """Rows of one shape with the latencies of its distinct parts added up; incomplete shapes go.

    Where two kernels do the same part, the faster one counts.
    """
    if not len(table):
        return table
    kernel = np.array(["convolution" if "conv" in name else "update" for name in table[part]])
    parts = table[part] if part == "op" else kernel
    keys = table.groups(shape)
    wanted = len(np.unique(parts))
    first: dict[int, int] = {}
    total: dict[int, list[float]] = {}
    seen: set[tuple[int, str]] = set()
    for row in np.argsort(table["latency_s"], kind="stable"):
        key = (int(keys[row]), str(parts[row]))
        if key in seen:
            continue
        seen.add(key)
        first.setdefault(key[0], int(row))
        total.setdefault(key[0], []).append(float(table["latency_s"][row]))
    whole = [key for key in sorted(first) if len(total[key]) == wanted]
    kept = table.where(np.array([first[key] for key in whole], dtype=int))
    return Table({**kept.columns, "latency_s": np.array([sum(total[key]) for key in whole])})


def _group(
    folder: Folder,
    kind: str,
    suffix: str,
    screened: Screened,
    how: tuple[Builder, str, Engine],
) -> Iterator[Group]:
    table = screened.table
    fewest = _FEWEST_COLLECTIVE if kind == "collective" else _FEWEST
    if len(table) < fewest:
        return
    build, dtype, engine = how
    operators = build(table, dtype, engine)
    cached = sum((part.kv_read_bytes + part.weight_bytes for part in operators), np.zeros(()))
    rows = Rows(
        operators,
        table["latency_s"],
        table.groups(kinds()[kind].shape),
        np.broadcast_to(cached, len(table)),
    )
    version = table.distinct("version")[-1]
    source = f"{folder.source}, {folder.gpu}/{kind}/{engine.name}/{version}"
    about: str | None = None
    warm: str | None = None
    if folder.public:
        about, warm = screens.remark(kind, table), screens.repeats(kind, table)
    note = "; ".join(filter(None, (about, screened.note)))
    yield Group(kind, suffix, rows, note, source, warm)
