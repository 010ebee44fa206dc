"""Profiles on disk: round trips, refusals, atomic replacement, which one is chosen."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from roofcast.hardware import profile_store
from roofcast.hardware.errors import (
    FileFormatError,
    InputError,
    SchemaVersionError,
    UnknownNameError,
)
from roofcast.hardware.profile import SCHEMA_VERSION, Band, Curve, HeldOut, Parameter, Profile

PROFILE = Profile(
    name="mine",
    device="h100-sxm-80gb",
    engine="torch",
    origin="decode runs",
    parameters={"gemm.fixed_s": Parameter(3e-6, "s", "measured", 1e-7, ("a run",), "a note")},
    curves={"gemm.rows": Curve("rows", (1.0, 8.0), (1.2, 1.0))},
    roofs={"memory_bandwidth_bytes_per_s": 3e12},
    valid_range={"batch": (1.0, 64.0)},
    conditions={"threads": 2.0, "torch": "2.13.0"},
    held_out=(HeldOut("held-out models", 60, 0.03, 0.1, -0.01, 0.8),),
    band=Band(-0.1, 0.12, "held-out runs"),
    warnings=("disturbed",),
    created="2026-11-29",
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path / "own"))
    return tmp_path / "own"


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    assert profile_store.read(profile_store.write(PROFILE, tmp_path / "p.json")) == PROFILE


def test_this_users_profile_comes_before_the_shipped_ones() -> None:
    shipped = profile_store.choose("h100-sxm-80gb", None)
    assert shipped is not None
    assert shipped.engine == "vllm"
    profile_store.write(PROFILE, profile_store.path_for("h100-sxm-80gb", "torch"))
    assert profile_store.choose("h100-sxm-80gb", None) == PROFILE
    assert profile_store.choose("h100-sxm-80gb", "vllm") == shipped


def test_an_engine_without_a_profile_is_named() -> None:
    with pytest.raises(UnknownNameError, match="'vlm'; did you mean 'vllm'"):
        profile_store.choose("h100-sxm-80gb", "vlm")


def test_an_unmeasured_device_has_none() -> None:
    assert profile_store.choose("groq-lpu-v1", None) is None


def test_every_shipped_profile_loads_and_is_named_after_its_device_and_engine() -> None:
    paths = list(profile_store.shipped())
    assert paths
    for path in paths:
        profile = profile_store.read(path)
        assert path.name == f"{profile.device}.{profile.engine}.json"


def document(tmp_path: Path) -> tuple[Path, dict[str, object]]:
    path = profile_store.write(PROFILE, tmp_path / "p.json")
    return path, json.loads(path.read_text())


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, "1", None])
def test_another_schema_version_is_refused(tmp_path: Path, version: object) -> None:
    path, content = document(tmp_path)
    path.write_text(json.dumps({**content, "schema_version": version}))
    with pytest.raises(SchemaVersionError, match="recalibrate, or update Roofcast"):
        profile_store.read(path)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"surprise": 1}, "surprise"),
        ({"engine": 3}, "engine"),
        (
            {"parameters": {"gemm.fixed_s": {"value": "fast", "unit": "s", "origin": "measured"}}},
            "value",
        ),
        ({"band": {"low": "NaN", "high": 0.1, "origin": "x"}}, "band.low"),
    ],
)
def test_an_edited_profile_is_refused_by_field(
    tmp_path: Path, change: dict[str, object], where: str
) -> None:
    path, content = document(tmp_path)
    path.write_text(json.dumps({**content, **change}))
    with pytest.raises(FileFormatError, match=where):
        profile_store.read(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\x00\x01", "null"])
def test_a_broken_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=r"p\.json"):
        profile_store.read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="No such file"):
        profile_store.read(tmp_path / "none.json")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = profile_store.write(PROFILE, tmp_path / "p.json")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(InputError, match="No space left on device"):
        profile_store.write(replace(PROFILE, name="new"), path)
    assert profile_store.read(path).name == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_a_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        profile_store.write(PROFILE, tmp_path / "file" / "p.json")
