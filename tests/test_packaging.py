"""What gets installed: every folder and data file of the four packages, and nothing of the tests."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("hardware", "simulator", "calibrate", "reports")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def sources() -> set[str]:
    """Files under the four folders that git keeps or would keep, as they are named when installed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout: which files belong to the project is not known")
    return {f"roofcast/{name}" for name in listed.stdout.split("\n") if name}


def test_every_folder_with_code_is_listed_as_a_package() -> None:
    found = {
        "roofcast." + ".".join(path.relative_to(ROOT).parts)
        for folder in FOLDERS
        for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
        if path.is_dir() and any(path.glob("*.py"))
    }
    assert sorted(found) == sorted(PROJECT["tool"]["setuptools"]["packages"])


def test_a_wheel_holds_all_code_and_data(tmp_path: Path) -> None:
    wanted = sources()
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("roofcast-*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert wanted - held == set()
    assert not [
        name for name in held if not name.startswith(tuple(f"roofcast/{f}/" for f in FOLDERS))
    ]
