"""Progress of a measurement on standard error: one line that renews itself, or a line a stage."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType

import typer

from roofcast.calibrate.progress import Progress
from roofcast.reports import units

_CLEAR = "\r\x1b[K"


class ProgressLine:
    """A listener of `calibrate`, used as a context: the line is gone when it ends."""

    def __init__(self) -> None:
        """Whether to renew the line depends on standard error being a terminal."""
        self._renews = sys.stderr.isatty()
        self._stage = ""

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._renews:
            typer.echo(_CLEAR, nl=False, err=True)

    def __call__(self, progress: Progress) -> None:
        """Show one step."""
        text = (
            f"{progress.stage} {progress.done}/{progress.total}  "
            f"{units.seconds(progress.elapsed_s)}  {progress.what}"
        )
        if self._renews:
            room = shutil.get_terminal_size((80, 24)).columns - 1
            typer.echo(_CLEAR + text[:room], nl=False, err=True)
        elif progress.stage != self._stage:
            self._stage = progress.stage
            typer.echo(f"{progress.stage}: {progress.total} steps", err=True)
