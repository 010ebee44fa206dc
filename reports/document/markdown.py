"""A report as Markdown, for a pull request: every table and sentence, no figure.

GitHub strips inline images and scripts, so figures are named and left to the HTML report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from roofcast.reports.document.blocks import (
    Block,
    Bullets,
    Captioned,
    Document,
    Explorer,
    Figure,
    Fold,
    Text,
)
from roofcast.reports.tables import Table

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&-])")
_JOINER = "\u2060"  # invisible; after an @ it keeps a host from finding a name to notify
_DIVIDERS = {True: "---:", False: "---"}


def render(document: Document) -> str:
    """The whole report; every text of it escaped."""
    parts = [f"# {escape(document.title)}", escape(document.subtitle), escape(document.made)]
    for section in document.sections:
        blocks = [text for text in map(block, section.blocks) if text]
        if blocks:
            parts += [f"## {escape(section.title)}", *blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no markup, link, mention or HTML; always one line.

    >>> print(escape("<img src=x> [a](b) | *c*"))
    \\<img src=x\\> \\[a\\]\\(b\\) \\| \\*c\\*
    >>> print(escape("80 % band −22 % to +28 %, 1,024"))
    80 % band −22 % to +28 %, 1,024
    """
    line = " ".join(text.split())
    line = _SPECIAL.sub(lambda found: _quoted(found, line), line)
    # A bare address would become a link; a broken scheme is only read.
    line = line.replace("://", "\\://").replace("www.", "www\\.")
    return line.replace("@", f"@{_JOINER}")


def _quoted(found: re.Match[str], line: str) -> str:
    """Hyphens, pluses and parentheses between words mean nothing to Markdown: they stay readable."""
    mark, before = found[0], line[: found.start()]
    if mark in "-+" and before.strip():
        return mark
    if mark == "_" and before[-1:].isalnum() and line[found.end() : found.end() + 1].isalnum():
        return mark
    if mark in "()" and "[" not in line:
        return mark
    return f"\\{mark}"


def block(given: Block) -> str:
    """One block; figures and the interactive view have no Markdown."""
    match given:
        case Text(text):
            return escape(text)
        case Bullets(items):
            return "\n".join(f"- {escape(item)}" for item in items)
        case Captioned(caption, table):
            return f"**{escape(caption)}**\n\n{pipes(table)}"
        case Fold(summary, blocks):
            inner = "\n\n".join(text for text in map(block, blocks) if text)
            head = f"<details><summary>{_html(summary)}</summary>"
            return f"{head}\n\n{inner}\n\n</details>" if inner else ""
        case Figure() | Explorer():
            return ""


def pipes(table: Table) -> str:
    """A table of GitHub's Markdown.

    >>> from roofcast.reports.tables import Column
    >>> print(pipes(Table((Column("a|b", ["1"]), Column("of", ["<b>"], False)))))
    | a\\|b | of |
    | ---: | --- |
    | 1 | \\<b\\> |
    """
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = [
        _row(escape(column.header) for column in table.columns),
        _row(_DIVIDERS[column.right] for column in table.columns),
        *(_row(escape(cell) for cell in row) for row in rows),
    ]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _html(text: str) -> str:
    from html import escape as escaped

    return escaped(" ".join(text.split())).replace("@", f"@{_JOINER}")
