"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def new_app() -> typer.Typer:
    """The Typer of one command's module; plain help, which starts faster than Rich's."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A bundled name (llama-3.1-8b), a config.json, a folder holding one, or a Hub id.",
        show_default=False,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "-d",
        metavar="NAME",
        help="A device of the catalogue (h100-sxm), a TOML spec, or auto for the attached one.",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        "-e",
        metavar="NAME",
        help="Use the device's profile under this engine (vllm, torch, ...); ideal for the floor.",
        show_default=False,
    ),
]
ProfileFile = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", metavar="FILE", help="Use this profile file.", show_default=False
    ),
]
Tensor = Annotated[int, typer.Option("--tp", metavar="N", help="Tensor-parallel ranks.")]
Pipeline = Annotated[int, typer.Option("--pp", metavar="N", help="Pipeline stages.")]
Expert = Annotated[
    int, typer.Option("--ep", metavar="N", help="Ranks that hold whole experts, of TP x DP.")
]
Data = Annotated[
    int, typer.Option("--dp", metavar="N", help="Attention groups that share the experts.")
]
Network = Annotated[
    float | None,
    typer.Option(
        "--network",
        metavar="GB_PER_S",
        help="Network between nodes, per device in one direction.",
        show_default=False,
    ),
]
PeerAccess = Annotated[
    bool | None,
    typer.Option(
        "--peer-access/--no-peer-access",
        help="Whether devices reach each other's memory over PCIe, against what the spec says.",
        show_default=False,
    ),
]
WeightDtype = Annotated[
    str | None,
    typer.Option(
        "--weight-dtype",
        "-w",
        metavar="FORMAT",
        help="Store the weights in this format (fp8, int4, ...) instead of the checkpoint's.",
        show_default=False,
    ),
]
KvDtype = Annotated[
    str | None,
    typer.Option(
        "--kv-dtype",
        "-k",
        metavar="DTYPE",
        help="Store the KV cache in this dtype instead of the model's.",
        show_default=False,
    ),
]
ProfileFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Where profiles go; by default to where forecasts look for them.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", "-j", help="Print JSON instead of a table.")]
