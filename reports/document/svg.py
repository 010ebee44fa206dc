"""Matplotlib's SVG, made fit to stand inside a page: no prolog, ids of its own, the page's colours.

Colours of the visual language become CSS variables with the printed colour as their default, so that
a figure follows the page into dark mode and prints as designed.
"""

from __future__ import annotations

import re

from roofcast.reports.figures import style

_COMMENTS = re.compile(r"<!--.*?-->", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_IDS = re.compile(r'( id="|href="#|url\(#)')
_WIDTH, _SIZE = re.compile(r' width="([\d.]+)pt"'), re.compile(r' (?:width|height)="[^"]*pt"')
_LARGEST = 1.3  # a figure grows with the page, but not so that its letters dwarf the text
_COLOURS = {
    style.INK: "ink",
    style.QUIET: "quiet",
    style.FAINT: "faint",
    style.BLUE: "blue",
    style.ORANGE: "orange",
    style.GREEN: "green",
    style.SKY: "sky",
    style.AMBER: "amber",
    style.PURPLE: "purple",
    "#ffffff": "paper",
    "#e6e6e6": "grid",
    "#8c8c8c": "axis",
    "#333333": "ink",
}
_COLOUR = re.compile("|".join(_COLOURS))


def inline(svg: str, key: str) -> str:
    """The `<svg>` element of a file that matplotlib wrote; `key` is unique within the page.

    It is decoration to a screen reader: the caption and the description beside it say what it shows.

    >>> inline('<?xml?><svg width="9pt" id="a"><!-- x --><use href="#a"/></svg>', "f")
    '<svg aria-hidden="true" ... style="max-width: 12pt" id="f-a"><use href="#f-a"/></svg>'
    """
    element = _COMMENTS.sub("", svg[svg.index("<svg") :])
    element = _METADATA.sub("", element)
    element = _IDS.sub(lambda found: f"{found[0]}{key}-", element)
    element = _COLOUR.sub(lambda found: f"var(--{_COLOURS[found[0]]}, {found[0]})", element)
    head, rest = element.split(">", 1)
    widest = _WIDTH.search(head)
    size = f' style="max-width: {_LARGEST * float(widest[1]):.0f}pt"' if widest else ""
    head = _SIZE.sub("", head).replace(
        "<svg", f'<svg aria-hidden="true" focusable="false"{size}', 1
    )
    return f"{head}>{rest}".strip()
