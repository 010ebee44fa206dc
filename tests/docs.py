"""Console blocks of the docs: what they run, and their output. `python -m tests.docs` refreshes it.

A block opens with a command; its output is everything after it, as a pipe sees it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roofcast.reports.cli import run

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
_BLOCK = re.compile(r"```console\n\$ roofcast (?P<command>.+?[^\\])\n(?P<output>.*?)```", re.DOTALL)


def pages() -> list[Path]:
    """Every page of examples."""
    return sorted(EXAMPLES.glob("*.md"))


def commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Arguments and printed output of every console block."""
    for match in _BLOCK.finditer(text):
        yield shlex.split(match["command"].replace("\\\n", " ")), match["output"]


def refreshed(text: str) -> str:
    """The page with what its commands print now, run one after another in an empty folder."""

    def renewed(match: re.Match[str]) -> str:
        command = shlex.split(match["command"].replace("\\\n", " "))
        return f"```console\n$ roofcast {match['command']}\n{printed(command)}```"

    return _BLOCK.sub(renewed, text)


def printed(command: list[str]) -> str:
    """Standard output of a command that must succeed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = run(command)
    if status != 0:
        raise SystemExit(f"roofcast {shlex.join(command)} ended with {status}")
    return out.getvalue()


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    for page in pages():
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
        sys.stdout.write(f"{page.name}\n")
