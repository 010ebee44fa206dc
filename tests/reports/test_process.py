"""The command as a process: what it imports, and how it behaves towards terminals and pipes."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest

RUN = "import sys; from roofcast.reports.cli import run; status = run(sys.argv[1:]); "
HEAVY = ("torch", "matplotlib", "scipy", "xarray", "pandas", "rich", "transformers")
PREDICT = ("predict", "llama.json", "-d", "h100-sxm", "-b", "1:1024", "-c", "1k,16k")


def roofcast(
    *arguments: str, after: str = "sys.exit(status)", **options
) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", RUN + after, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def imported_by(*arguments: str) -> set[str]:
    names = (*HEAVY, "numpy", "pydantic")
    after = f"print(*[name for name in {names} if name in sys.modules], file=sys.stderr)"
    done = roofcast(*arguments, after=after)
    return set(done.stderr.split())


def test_help_imports_nothing_heavy():
    assert imported_by("--help") == set()


@pytest.mark.parametrize("options", [(), ("--json",), ("--engine", "ideal")])
def test_predict_imports_nothing_heavy(llama, options):
    assert not imported_by(*PREDICT, *options) & set(HEAVY)


def in_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What a terminal of that width shows."""
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    unset = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN + "sys.exit(status)", *arguments],
        stdout=child,
        stderr=child,
        env={**unset, "TERM": "xterm", **environment},
    )
    os.close(child)
    shown = bytearray()
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(parent)
    assert process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_terminal_loses_columns_never_digits(llama, columns):
    text = re.sub(r"\x1b\[\d*m", "", in_terminal(columns, *PREDICT))
    assert "…" not in text
    rows = [line for line in text.splitlines() if re.match(r"\s*[\d,]+  +[\d,]+  ", line)]
    assert len(rows) == 22
    assert all(re.search(r"(yes|NO)( +extrapolated)?$", row) for row in rows)
    widest = max(len(line) for line in text.splitlines())
    assert widest <= max(columns, 52)
    assert ("no room for" in text) == (columns < 90)


def test_a_terminal_gets_a_bold_header_unless_it_declines(llama):
    assert "\x1b[1m" in in_terminal(80, *PREDICT)
    assert "\x1b" not in in_terminal(80, *PREDICT, NO_COLOR="1")
    assert "\x1b" not in in_terminal(80, *PREDICT, TERM="dumb")


def test_a_pipe_gets_everything_without_escapes(llama):
    done = roofcast(*PREDICT, env={**os.environ, "COLUMNS": "20"})
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "MFU" in done.stdout


def test_a_reader_who_has_seen_enough_is_no_error():
    head = f"{sys.executable} -c '{RUN}sys.exit(status)' device --json | head -1"
    done = subprocess.run(head, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "[\n"
    assert done.stderr == ""


def test_letters_that_an_encoding_lacks_are_no_error(llama):
    done = roofcast(*PREDICT, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_goes_to_standard_error_only():
    done = roofcast("predict", "nothing", "-d", "h100-sxm")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("roofcast: unknown model 'nothing'")
