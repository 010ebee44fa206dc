"""What a Linux container lets this process use: the limits of its control groups (v2 and v1).

A group inside a container is often mounted at the top, so both the process's
own group and the top one are read, and the tightest limit holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def read(path: Path) -> str | None:
    """A small system file; None where it is absent or closed to us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def cpus(root: Path) -> float | None:
    """CPUs' worth of time that the groups allow, or None without a limit.

    v2 writes "QUOTA PERIOD" or "max PERIOD" in one file; v1 has a file for each,
    and -1 for no limit.
    """
    quotas = []
    for group in _groups(root, "cpu"):
        quota, _, period = (read(group / "cpu.max") or "").partition(" ")
        if not period:
            quota = read(group / "cpu.cfs_quota_us") or ""
            period = read(group / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_bytes(root: Path) -> int | None:
    """The memory limit of the groups; an unlimited v1 group says more than any machine has."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = (read(group / name) or "" for group in _groups(root, "memory") for name in names)
    return min((int(text) for text in texts if text.isdigit()), default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's groups; a line is `id:controllers:path`, v2 names none."""
    for line in (read(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers or controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / (controller if controllers else "")
            yield from dict.fromkeys((top / group.strip("/"), top))
