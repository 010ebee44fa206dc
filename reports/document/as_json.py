"""A report as JSON-ready values: every sentence and table by section, and the points."""

from __future__ import annotations

from typing import Any

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


def describe(document: Document) -> dict[str, Any]:
    """The whole report; figures by caption and description only."""
    return {
        "title": document.title,
        "subtitle": document.subtitle,
        "made": document.made,
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "blocks": [block(each) for each in section.blocks],
            }
            for section in document.sections
        ],
        "points": [dict(row) for row in document.rows],
    }


def block(given: Block) -> dict[str, Any]:
    """One block, its kind under the key that holds it.

    >>> block(Bullets(("a", "b")))
    {'sentences': ['a', 'b']}
    """
    match given:
        case Text(text):
            return {"sentences": [text]}
        case Bullets(items):
            return {"sentences": list(items)}
        case Captioned(caption, table):
            rows = zip(*(column.cells for column in table.columns), strict=True)
            return {
                "table": caption,
                "columns": [column.header for column in table.columns],
                "rows": [list(row) for row in rows],
            }
        case Fold(summary, blocks):
            return {"details": summary, "blocks": [block(each) for each in blocks]}
        case Figure(caption, description):
            return {"figure": caption, "description": description}
        case Explorer(data):
            return {"grids": dict(data)}
