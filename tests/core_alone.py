"""Runs the core's tests in a copy of the tree from which the outer rooms are deleted.

    python tests/core_alone.py [arguments of pytest]

The copy is installed without the entry points of these rooms, ahead of the tree in sys.path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTER_ROOMS = ("addons", "controller", "workbench", "insight/dashboard")
TESTS_OF_ADD_ONS = ("test_recorded_add_ons.py", "test_add_on_wakeups.py")


def main(arguments: list[str]) -> int:
    """Copy, install and test; return the exit code of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_tree(copy)
        for room in OUTER_ROOMS:
            shutil.rmtree(copy / "src" / "proreus" / room)
            shutil.rmtree(copy / "tests" / "unit" / room)
        for test in TESTS_OF_ADD_ONS:
            (copy / "tests" / "conformance" / test).unlink()
        drop_entry_points(copy / "pyproject.toml", copy / "src")
        site = copy / "site"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        install += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
        subprocess.run([*install, str(copy)], check=True)
        environment = os.environ | {"PYTHONPATH": str(site)}
        pytest = [sys.executable, "-m", "pytest", *arguments]
        return subprocess.run(pytest, cwd=copy, env=environment).returncode


def copy_tree(copy: Path) -> None:
    """Copy all files that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)


def drop_entry_points(pyproject: Path, source: Path) -> None:
    """Delete the entry points into folders that are not there."""
    rooms = tuple(f'"proreus.{room.replace("/", ".")}' for room in OUTER_ROOMS)
    lines = pyproject.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.partition(" = ")[2].startswith(rooms)]
    pyproject.write_text("".join(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
