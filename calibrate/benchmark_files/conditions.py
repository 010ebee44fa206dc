"""What ran: the part that few benchmark files hold, given by flags or by a sidecar file instead.

A sidecar of `run.json` is `run.conditions.toml` beside it, or `conditions.toml` for the whole
folder:

    model = "llama-3.1-70b"
    device = "h100-sxm"
    engine = "vllm"
    tp = 4
    weight_dtype = "fp8"
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofcast.hardware.validation import check, read_toml

if TYPE_CHECKING:
    from pydantic import BaseModel

SUFFIX = ".conditions.toml"
FOLDER_FILE = "conditions.toml"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Model, device, layout and formats of a run, each None where nobody said.

    `batch`, `input_tokens` and `output_tokens` complete files that lack them (vLLM's bench latency);
    `draft_tokens` is how many tokens speculative decoding proposes a step.
    """

    model: str | None = None
    device: str | None = None
    engine: str | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    batch: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    draft_tokens: int | None = None

    def over(self, other: Conditions) -> Conditions:
        """These conditions, completed by others.

        >>> Conditions(tp=2).over(Conditions(tp=4, engine="vllm")).engine
        'vllm'
        """
        return replace(other, **self.known())

    def known(self) -> dict[str, Any]:
        """The conditions that somebody stated."""
        pairs = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in pairs if value is not None}


def sidecar(path: Path) -> Conditions:
    """The conditions beside a result file; those of the file before those of the folder.

    FileFormatError names an unknown key and the nearest known one.
    """
    found = Conditions()
    for candidate in (path.with_name(path.name.split(".")[0] + SUFFIX), path.parent / FOLDER_FILE):
        if candidate.is_file():
            found = found.over(_read(candidate))
    return found


def _read(path: Path) -> Conditions:
    document = check(_schema(), read_toml(path), path)
    return Conditions(**document.model_dump())


@cache
def _schema() -> type[BaseModel]:
    """The schema of a sidecar; pydantic is imported only where there is one."""
    from pydantic import ConfigDict, PositiveFloat, PositiveInt, create_model

    names = ("model", "device", "engine", "weight_dtype", "kv_dtype")
    counts = ("tp", "pp", "ep", "dp", "draft_tokens")
    sizes = ("batch", "input_tokens", "output_tokens")
    entries: dict[str, Any] = {
        **dict.fromkeys(names, (str | None, None)),
        **dict.fromkeys(counts, (PositiveInt | None, None)),
        **dict.fromkeys(sizes, (PositiveFloat | None, None)),
    }
    return create_model("Sidecar", __config__=ConfigDict(extra="forbid"), **entries)
