"""``make image`` and ``make push`` with programs that only say how they were called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_DAEMON = 'test "$1" != info'
"""docker info fails, although docker is installed."""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder that is the PATH."""
    for name in ("sed", "sh"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    return tmp_path


def install(programs: Path, name: str, first: str = ":") -> None:
    program = programs / name
    program.write_text(f'#!/bin/sh\n{first} || exit 1\necho {name} "$@"\n')
    program.chmod(0o755)


def make(programs: Path, *arguments: str) -> tuple[int, list[str]]:
    program = shutil.which("make")
    assert program is not None
    done = subprocess.run(
        [program, "--no-print-directory", *arguments],
        cwd=ROOT,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_the_first_engine_that_works_builds_the_image(programs: Path) -> None:
    install(programs, "docker", WITHOUT_DAEMON)
    install(programs, "buildah")
    code, lines = make(programs, "image", "IMAGE=example.com/p:1", "IMAGE_FLAGS=--no-cache")
    assert (code, lines) == (0, ["buildah build --tag example.com/p:1 --no-cache ."])
    install(programs, "podman")
    assert make(programs, "image")[1][0].startswith("podman build --tag proreus:")
    install(programs, "docker")
    assert make(programs, "image")[1][0].startswith("docker build --tag proreus:")
    assert make(programs, "image", "ENGINE=podman")[1][0].startswith("podman build")


def test_says_that_no_engine_works(programs: Path) -> None:
    install(programs, "docker", WITHOUT_DAEMON)
    code, lines = make(programs, "image")
    assert code == 2
    assert lines == [
        "make image needs docker with a running daemon, podman or buildah; none of them answers"
    ]


def test_push_builds_and_pushes_with_one_engine(programs: Path) -> None:
    install(programs, "podman")
    code, lines = make(programs, "push", "IMAGE=example.com/p:1")
    assert code == 0
    assert lines == ["podman build --tag example.com/p:1 .", "podman push example.com/p:1"]


def test_push_needs_the_name_of_a_registry(programs: Path) -> None:
    install(programs, "podman")
    code, lines = make(programs, "push", "IMAGE=proreus:1")
    assert code == 2
    assert "make push IMAGE=registry.example.com/team/proreus:1" in lines[0]
    assert len(lines) == 1
