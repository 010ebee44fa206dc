"""Files into checked documents, with one clear line for whatever is wrong.

Pydantic is imported only by those who call `check` (its import costs more than
reading a device), which is why the schemas stand in modules of their own.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from roofcast.hardware.errors import FileFormatError, bad_file, suggestion

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    Model = TypeVar("Model", bound=BaseModel)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file; FileFormatError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise bad_file(path, "no such file") from None
    except UnicodeDecodeError as error:
        raise bad_file(path, "expected UTF-8 text", where=f"byte {error.start}") from None
    except OSError as error:
        raise bad_file(path, f"cannot be read: {error.strerror or error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dictionary; FileFormatError with line and column when malformed."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise bad_file(path, f"not valid TOML: {error}") from None


def check(model: type[Model], document: object, path: str | Path) -> Model:
    """`document` as `model`, or a FileFormatError about its first fault."""
    from pydantic import ValidationError

    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _first_fault(model, error.errors(include_url=False), path) from None


def _first_fault(
    model: type[BaseModel], faults: list[ErrorDetails], path: str | Path
) -> FileFormatError:
    """An unknown key first: a misspelt one explains the missing one."""
    fault = next((item for item in faults if item["type"] == "extra_forbidden"), faults[0])
    *table, key = fault["loc"] or ("",)
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return bad_file(
            path, f"unknown key{suggestion(str(key), _keys(model, table))}", where=where
        )
    if fault["type"] == "missing":
        return bad_file(path, "missing", where=where)
    given = fault["input"]
    if fault["type"] == "model_type":
        return bad_file(path, f"expected a table, got {given!r}", where=where)
    problem = fault["msg"][:1].lower() + fault["msg"][1:]
    if fault["type"] == "value_error" or isinstance(given, dict):
        return bad_file(path, problem.removeprefix("value error, "), where=where)
    return bad_file(path, f"{problem}, got {given!r}", where=where)


def _keys(model: type[BaseModel], table: list[int | str]) -> list[str]:
    """The keys allowed in the table that `table` leads to."""
    found: type[BaseModel] | None = model
    for part in table:
        if isinstance(part, str):
            item = found.model_fields.get(part) if found else None
            found = _model_in(item.annotation) if item else None
    return list(found.model_fields) if found else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model inside a type such as `Memory`, `Memory | None` or `list[Memory]`."""
    if hasattr(annotation, "model_fields"):
        model: type[BaseModel] = annotation
        return model
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
