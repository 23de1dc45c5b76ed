"""docs/recipes.md, executed: each recipe's plugin, configuration and test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "recipes.md"
RECIPES = ("QueueSort", "Bind", "Delay", "Gang", "Measure")


def files_of(recipe: str) -> dict[str, str]:
    """Return the files of a recipe, by name."""
    (section,) = re.findall(rf"^## {recipe}: .*?(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return dict(re.findall(r"^```(?:python|yaml) (\S+)\n(.*?)^```$", section, re.M | re.S))


def test_every_block_of_the_page_belongs_to_a_recipe() -> None:
    blocks = re.findall(r"^```\w+.*$", PAGE.read_text(), re.M)
    assert len(blocks) == sum(len(files_of(recipe)) for recipe in RECIPES) == 3 * len(RECIPES)


@pytest.fixture(params=RECIPES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the files of a recipe."""
    for name, text in files_of(request.param).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_its_own_test_passes(folder: Path) -> None:
    assert " passed" in run(folder, "pytest", "-q", "-p", "no:cacheprovider")


def test_a_scheduler_would_start_with_its_configuration_without_a_warning(folder: Path) -> None:
    for test in folder.glob("test_*.py"):
        test.unlink()
    said = run(folder, "proreus", "plugins", "--plugin-dir", ".", "--config", "config.yaml")
    assert not re.search(r"^[WE]\d{4} |never|have no effect", said, re.M), said
