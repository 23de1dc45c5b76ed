"""The wheel that is built here: what a user gets beside the code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import proreus

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_has_definitions_and_examples_and_no_tests(unpacked: Path) -> None:
    shipped = unpacked / "proreus" / "shipped"
    for folder in ("deploy/chart", "deploy/crds", "examples"):
        there = {str(file.relative_to(ROOT / folder)) for file in files(ROOT / folder)}
        assert {str(file.relative_to(shipped / folder)) for file in files(shipped / folder)} == {
            name for name in there if not Path(name).name.startswith(("test_", "conftest"))
        }
    assert {path.name for path in unpacked.iterdir()} == {
        "proreus",
        f"proreus-{proreus.__version__}.dist-info",
    }


def files(folder: Path) -> list[Path]:
    """Return the files in a folder, also behind links, as the chart has them."""
    walk = os.walk(folder, followlinks=True)
    found = [Path(at, name) for at, _, names in walk for name in names]
    return [one for one in found if "__pycache__" not in one.parts]


@pytest.mark.parametrize(("command", "line"), [("crds", "podgroup "), ("example", "low-cpu ")])
def test_the_commands_find_the_files_of_the_wheel(
    unpacked: Path, tmp_path: Path, command: str, line: str
) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r}); import proreus\n"
        f"assert proreus.__file__.startswith({str(unpacked)!r})\n"
        f"from proreus.process.cli import main; main([{command!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"\n{line}" in done.stdout
