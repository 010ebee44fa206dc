"""The docs' blocks and what they print. `python -m tests.docs` refreshes pages and figures.

A page runs from top to bottom in one empty folder. In a `console` block each line that opens with
`$ ` is a command, and what follows is its output, as a pipe sees it. `python` blocks share their
names; a `text` block right behind one is what it prints. Below `<!-- follows the profiles -->`, and on
the pages of examples, numbers change with every fit of a profile: tests look at headings only.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from roofcast.reports.cli import run

ROOT = Path(__file__).parent.parent
DOCS, EXAMPLES = ROOT / "docs", ROOT / "docs" / "examples"
_FENCE = re.compile(
    r"(?P<mark><!-- follows the profiles -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```"
    r"(?P<printed>\n\n```text\n(?P<text>.*?)```)?",
    re.DOTALL,
)
_COMMAND = re.compile(r"^\$ (?P<line>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_WRITTEN = "1795910400"
"""29 November 2026: the day that reports of the docs bear, whenever they are made."""
_FIGURE = re.compile(r"!\[[^\]]*\]\((?:\.\./)*figures/([\w-]+\.svg)\)")


@dataclass(frozen=True)
class Outcome:
    """What one command or block printed, and what the page says it prints."""

    source: str
    printed: str
    written: str
    exact: bool


def pages() -> list[Path]:
    """Every page that has blocks to run."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def kinds(text: str) -> set[str]:
    """The languages of a page's blocks."""
    return {match["kind"] for match in _FENCE.finditer(text)}


def outcomes(page: Path) -> Iterator[Outcome]:
    """Run a page in the present folder."""
    names: dict[str, object] = {}
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        exact = match["mark"] is None and EXAMPLES not in page.parents
        if match["kind"] == "python":
            yield Outcome(match["body"], _python(match["body"], names), match["text"] or "", exact)
        elif match["kind"] == "console":
            for command in _COMMAND.finditer(match["body"]):
                printed = _command(command["line"])
                yield Outcome(command["line"], printed, command["output"], exact)


def refreshed(page: Path) -> str:
    """The page with what its blocks print now."""
    names: dict[str, object] = {}

    def commands(match: re.Match[str]) -> str:
        return f"$ {match['line']}\n{_command(match['line'])}"

    def renewed(match: re.Match[str]) -> str:
        mark = match["mark"] or ""
        if match["kind"] == "console":
            body = _COMMAND.sub(commands, match["body"])
            return f"{mark}```console\n{body}```{match['printed'] or ''}"
        if match["kind"] == "python":
            printed = _python(match["body"], names)
            shown = f"\n\n```text\n{printed}```" if match["printed"] else ""
            return f"{mark}```python\n{match['body']}```{shown}"
        return match[0]

    return _FENCE.sub(renewed, page.read_text(encoding="utf-8"))


def figures(text: str) -> list[str]:
    """Files in docs/figures that a page shows; its blocks draw them."""
    return _FIGURE.findall(text)


def _command(line: str) -> str:
    """Standard output of a command that must succeed; `head -N FILE` is the only foreign one."""
    words = shlex.split(line.replace("\\\n", " "))
    if words[0] == "head":
        lines = Path(words[2]).read_text(encoding="utf-8").splitlines(keepends=True)
        return "".join(lines[: int(words[1].removeprefix("-"))])
    assert words[0] == "roofcast", f"the docs run roofcast only, not {line!r}"
    out = io.StringIO()
    dated = mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": _WRITTEN})
    with contextlib.redirect_stdout(out), dated:
        status = run(words[1:])
    assert status == 0, f"{line} ended with {status}"
    return out.getvalue()


def _python(body: str, names: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(body, "<docs>", "exec"), names)
    return out.getvalue()


def refresh(page: Path) -> None:
    """Write a page and its figures anew."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = refreshed(page)
        page.write_text(text, encoding="utf-8")
        for name in figures(text):
            shutil.copy(name, DOCS / "figures" / name)
        os.chdir(ROOT)


if __name__ == "__main__":
    wanted = [Path(name).resolve() for name in sys.argv[1:]]
    for each in wanted or [page for page in pages() if DOCS in page.parents]:
        refresh(each)
        sys.stdout.write(f"{each.relative_to(ROOT)}\n")
