"""The versions that pages promise are those of the code and of the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from proreus.base.kubernetes_version import DEFAULT_VERSION, SUPPORTED_VERSIONS

ROOT = Path(__file__).resolve().parents[2]


def pythons() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    return [one.removeprefix(prefix) for one in project["classifiers"] if one.startswith(prefix)]


@pytest.mark.parametrize("page", ["README.md", "docs/upgrading.md"])
def test_a_page_names_the_supported_versions(page: str) -> None:
    text = (ROOT / page).read_text()
    # one that is newer than the default is there in part
    kubernetes = [str(one) for one in SUPPORTED_VERSIONS if one <= DEFAULT_VERSION]
    for versions in (kubernetes, pythons()):
        assert re.search(rf"\| {', '.join(map(re.escape, versions))}(?![.\d])", text), versions


def test_the_chart_is_for_the_supported_versions_of_kubernetes() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())
    oldest, newest = min(SUPPORTED_VERSIONS), max(SUPPORTED_VERSIONS)
    after = f"{newest.major}.{newest.minor + 1}"
    assert chart["kubeVersion"] == f">={oldest}.0-0 <{after}.0-0"


def test_the_image_has_a_supported_python() -> None:
    [version] = re.findall(r"^ARG PYTHON_VERSION=(.+)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert version in pythons()
    assert f"the image has {version}" in (ROOT / "README.md").read_text()


def test_every_file_that_names_the_version_has_the_same() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for page in ("README.md", "docs/operating.md"):
        named = re.findall(r"proreus(?:-image)?[-:](\d+\.\d+\.\d+)", (ROOT / page).read_text())
        assert named, page
        assert set(named) == {version}, page
