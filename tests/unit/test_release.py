"""What ``make release`` puts together; the whole is built twice and compared there."""

from __future__ import annotations

import importlib.util
import os
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("release", ROOT / "release.py")
assert _spec is not None
assert _spec.loader is not None
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)

CHANGELOG = """# Changelog

## [Unreleased]

- Not yet.

## [0.2.0] - 2027-01-02

- New.

## [0.1.0] - 2026-11-28

- First.
"""


def test_release_notes_are_the_section_of_the_version() -> None:
    notes = release.release_notes(CHANGELOG, "0.2.0")
    assert notes == "## [0.2.0] - 2027-01-02\n\n- New.\n"
    assert release.release_notes(CHANGELOG, "0.1.0").endswith("- First.\n")


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "Unreleased"])
def test_refuses_a_version_without_a_dated_section(version: str) -> None:
    with pytest.raises(release.ReleaseError, match="has no section"):
        release.release_notes(CHANGELOG, version)


def write(folder: Path, mask: int, seconds: int, names: list[str]) -> Path:
    before = os.umask(mask)
    try:
        for name in names:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"text of {name}")
            os.utime(file, (seconds, seconds))
    finally:
        os.umask(before)
    return folder


def test_an_archive_does_not_depend_on_times_masks_and_order(tmp_path: Path) -> None:
    names = ["b.txt", "a/c.txt", "a/b.txt"]
    folders = [
        write(tmp_path / "one", 0o022, 1000, names),
        write(tmp_path / "two", 0o077, 2000, names[::-1]),
    ]
    archives = []
    for folder in folders:
        target = folder.with_suffix(".tgz")
        release.archive(target, folder, release.files_in(folder), "proreus", 3000)
        archives.append(target.read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(tmp_path / "one.tgz") as packed:
        assert packed.getnames() == ["proreus/a/b.txt", "proreus/a/c.txt", "proreus/b.txt"]
        assert {(one.mode, one.uid, one.mtime) for one in packed} == {(0o644, 0, 3000)}


def test_the_image_recipe_has_all_that_the_dockerfile_copies() -> None:
    names = {name.parts[0] for name in release.image_recipe(ROOT)}
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    copied = {name for line in copies if not line[0].startswith("--") for name in line}
    assert names == copied | {"Dockerfile", ".dockerignore"}


def test_names_the_files_that_differ(tmp_path: Path) -> None:
    one = write(tmp_path / "one", 0o022, 0, ["same", "other", "missing"])
    two = write(tmp_path / "two", 0o022, 0, ["same", "other"])
    (two / "other").write_text("another text")
    assert release.different_files(one, two) == ["missing", "other"]
    assert release.different_files(one, one) == []
