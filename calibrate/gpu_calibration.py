"""One command for a GPU that is lent for minutes: every mode calibrated, one small folder written.

    python -m roofcast.calibrate.gpu_calibration OUT [--minutes 8.5] [--device cuda]

`calibrate/bare_gpu.sh` packs this with its few wheels for a machine that has torch, numpy and scipy but
no network. The folder holds a profile and the raw samples of each mode, and a summary in words.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from roofcast.calibrate.calibration import ENGINES, Calibration, calibrate
from roofcast.calibrate.progress import Progress
from roofcast.hardware.errors import MeasurementError, RoofcastError
from roofcast.hardware.profile import Profile

_SHARES = {"graph": 0.5, "eager": 0.5}
"""Of the time that is left, by mode, in this order."""

_EVERY_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status of the command."""
    parser = argparse.ArgumentParser(description="Calibrate a GPU in all modes, within minutes.")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--minutes", type=float, default=8.5, help="all measurements together")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="fewer kernels, runs and models")
    asked = parser.parse_args(arguments)
    modes = list(_SHARES) if asked.device == "cuda" else ["eager"]
    try:
        found = calibrate_modes(asked.out, asked.device, modes, 60 * asked.minutes, asked.quick)
    except RoofcastError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    sys.stdout.write(summary(found))
    return 0


def calibrate_modes(
    folder: Path, device: str, modes: Sequence[str], budget_s: float, quick: bool
) -> dict[str, Calibration]:
    """Calibrate mode after mode, each with its share of the time left; a mode that fails is left out.

    MeasurementError where no mode could be measured.
    """
    started = time.perf_counter()
    found: dict[str, Calibration] = {}
    failures: list[str] = []
    for position, mode in enumerate(modes):
        left_s = budget_s - (time.perf_counter() - started)
        try:
            found[mode] = calibrate(
                device,
                quick=quick,
                mode=mode,
                budget_s=left_s / (len(modes) - position),
                out=folder / f"{ENGINES[mode]}.json",
                listener=Throttled(),
            )
        except MeasurementError as error:
            failures.append(f"{mode}: {error}")
    if not found:
        raise MeasurementError("; ".join(failures))
    text = summary(found) + "".join(f"failed: {failure}\n" for failure in failures)
    (folder / "summary.txt").write_text(text, encoding="utf-8")
    return found


class Throttled:
    """A listener that writes a line every few seconds."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self, progress: Progress) -> None:
        """Write where it is, unless it just did."""
        now = time.perf_counter()
        if now - self._last >= _EVERY_S:
            self._last = now
            sys.stderr.write(
                f"{progress.elapsed_s:6.1f} s  {progress.stage} {progress.done}/{progress.total}  "
                f"{progress.what}\n"
            )


def summary(found: dict[str, Calibration]) -> str:
    """What was measured and what it is worth, in lines."""
    lines = []
    for mode, calibration in found.items():
        profile = calibration.profile
        lines += [f"== {mode}: {profile.name}", *_errors(profile), *_reached(calibration)]
        lines += [f"warning: {text}" for text in profile.warnings]
    results = {mode: calibration.as_json() for mode, calibration in found.items()}
    return "\n".join([*lines, json.dumps(results), ""])


def _errors(profile: Profile) -> list[str]:
    return [
        f"{each.scheme}: {each.runs} runs, median {each.median_ape:.1%}, p90 {each.p90_ape:.1%}, "
        f"signed {each.signed_median:+.1%}, coverage "
        f"{'unknown' if each.coverage is None else f'{each.coverage:.0%}'}"
        for each in profile.held_out
    ]


def _reached(calibration: Calibration) -> list[str]:
    """Measured roofs; the datasheet's stand in the device's spec."""
    return [f"measured {name}: {value:.4g}" for name, value in calibration.profile.roofs.items()]


if __name__ == "__main__":
    raise SystemExit(main())
