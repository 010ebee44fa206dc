"""Config fields that change neither a size nor what a decode step reads or computes in matrices.

Anything else that an adapter does not read is named in a warning.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import Final

_PATTERNS: Final = re.compile(
    r".*token_ids?$|.*token_index$|.*dropout.*|.*_pdrop$|.*initializer.*|^rope_.*|.*_rope_.*theta.*"
    r"|^mscale.*|.*softcap.*|^_.*|.*loss.*coef.*|.*jitter.*|^mup_.*|^output_.*|.*init_std$"
)


def is_harmless(name: str) -> bool:
    """Whether a field is known to matter to no count.

    >>> is_harmless("eos_token_id"), is_harmless("num_mystery_heads")
    (True, False)
    """
    return _PATTERNS.fullmatch(name) is not None or name in _names()


@cache
def _names() -> frozenset[str]:
    table = resources.files("roofcast.simulator").joinpath("harmless.json").read_text()
    groups: dict[str, list[str]] = json.loads(table)
    return frozenset(name for group, names in groups.items() if group[0] != "_" for name in names)
