"""The libraries of the pages are those that are listed, and all that is needed is installed."""

import importlib.util
import json
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def vendored():
    spec = importlib.util.spec_from_file_location("vendored", ROOT / "tests/lint/vendored.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def packages(vendored):
    return json.loads(vendored.LIST.read_text())


def test_files_are_what_the_list_says(vendored, packages):
    assert list(vendored.problems(packages)) == []


def test_every_package_has_its_licence_version_and_integrity(packages):
    assert set(packages) == {"htmx.org", "uplot"}
    for package in packages.values():
        assert package["version"].startswith(f"{package['range']}.")
        assert package["integrity"].startswith("sha512-")
        assert any(entry["as"].endswith(".LICENSE") for entry in package["files"].values())


def test_notices_manual_changes(vendored, packages, tmp_path):
    folder = tmp_path / "vendored"
    shutil.copytree(vendored.VENDORED, folder)
    (folder / "htmx.min.js").write_text("something else")
    (folder / "uPlot.LICENSE").unlink()
    (folder / "more.js").write_text("")
    packages["uplot"]["licence"] = "GPL-3.0"
    assert list(vendored.problems(packages, folder)) == [
        f"htmx.org: htmx.min.js is not what {packages['htmx.org']['version']} has",
        "uplot: licence GPL-3.0 is not allowed",
        "uplot: uPlot.LICENSE is missing",
        "more.js: of no listed package",
    ]


def test_the_wheel_has_everything_below_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "src/proreus" in wheel["only-include"]
    assert not any("dashboard" in line for line in (ROOT / ".gitignore").read_text().splitlines())
