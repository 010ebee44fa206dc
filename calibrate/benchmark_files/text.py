"""Text of unknown origin: decoded by its byte-order mark, and made safe to show."""

from __future__ import annotations

import codecs
import re
import unicodedata
from pathlib import Path

from roofcast.hardware.errors import FileFormatError, bad_file

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, ...
    r"|\x1b[ -/]*[0-~]?"
)
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def decode(raw: bytes, path: Path) -> str:
    """UTF-8 or, by its byte-order mark, UTF-16 (what PowerShell's `>` writes)."""
    encoding = next((name for mark, name in _MARKS if raw.startswith(mark)), "utf-8")
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise unusable(path, "is not text in UTF-8 or UTF-16", f"byte {error.start}") from None


def printable(text: str, longest: int = 120) -> str:
    """A string from a file on one line, without terminal escapes and invisible characters, cut short.

    >>> printable("Llama\\x1b[31m 8B\\n\\u202egpj.exe"), printable("x" * 9, 5)
    ('Llama 8B gpj.exe', 'xxxx…')
    """
    plain = " ".join(_ESCAPES.sub("", text[: 20 * longest]).split())
    shown = "".join(char for char in plain if unicodedata.category(char) not in _INVISIBLE)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def unusable(path: Path, problem: str, where: str = "") -> FileFormatError:
    """A FileFormatError whose path and place are safe to show."""
    return bad_file(printable(str(path), 240), problem, where=printable(where))
