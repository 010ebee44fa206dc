"""How long the command line takes from nothing: processor time, best of several starts.

Starting is bound by one processor, so this is what the clock shows on a machine that is idle.
"""

import resource
import subprocess
import sys

import pytest

RUN = "import sys; from roofcast.reports.cli import run; sys.exit(run(sys.argv[1:]))"
STARTS = 7


@pytest.mark.parametrize(
    ("arguments", "limit_s"),
    [
        (("--help",), 0.3),
        (("predict", "llama-3.1-8b", "--device", "h100-sxm"), 0.6),
        (("predict", "llama-3.1-8b", "--device", "h100-sxm", "--json"), 0.6),
    ],
    ids=["help", "predict", "predict-json"],
)
def test_start(arguments, limit_s, capsys):
    best = min(seconds(arguments) for _ in range(STARTS))
    with capsys.disabled():
        sys.stdout.write(f"\nroofcast {' '.join(arguments)}: {best:.3f} s, limit {limit_s} s\n")
    assert best < limit_s


def seconds(arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", RUN, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
