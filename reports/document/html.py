"""A report as one HTML file that needs nothing else: styles, figures, script and data are inside.

Nothing that a user's file says can become markup or script. Three walls, each enough alone: Jinja
escapes every text; data for the script is JSON whose `<`, `>` and `&` are escapes; and the page's
own Content-Security-Policy forbids every connection and every script but the two whose hashes it
states.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from roofcast.hardware.errors import InputError
from roofcast.reports.document.blocks import Document

if TYPE_CHECKING:
    from jinja2 import Environment

_PLOTTING = "vendor/plotly-cartesian.min.js"
_OWN = "templates/report.js"


def render(document: Document) -> str:
    """The page. InputError where jinja2 is not installed."""
    scripts = [_asset(_PLOTTING), _asset(_OWN)] if _is_interactive(document) else []
    page: str = (
        _environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            style=_asset("templates/report.css"),
            scripts=scripts,
            policy=policy(scripts),
        )
    )
    return page


def policy(scripts: list[str]) -> str:
    """The Content-Security-Policy: no connection at all, and only these scripts."""
    allowed = [f"'sha256-{_digest(script)}'" for script in scripts] or ["'none'"]
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(allowed)}",
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _is_interactive(document: Document) -> bool:
    from roofcast.reports.document.blocks import Explorer

    return any(isinstance(b, Explorer) for section in document.sections for b in section.blocks)


def _asset(name: str) -> str:
    """A text shipped beside this module, with the line ends that a browser hashes."""
    text = resources.files("roofcast.reports.document").joinpath(name).read_text("utf-8")
    return text.replace("\r\n", "\n")


def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise InputError(
            "an HTML report needs jinja2: `pip install jinja2`, or give --format markdown"
        ) from None
    environment = Environment(
        loader=PackageLoader("roofcast.reports.document"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ours"] = Markup  # only for assets of this package and inlined figures
    environment.tests["kind"] = lambda block, name: type(block).__name__ == name
    return environment
