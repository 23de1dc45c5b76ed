"""The lock: what image, CI and developers install, by content."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
LOCKS = ("runtime", "development", "build", "tools", "site", "clients")

Locked = dict[str, tuple[str, frozenset[str]]]


def locked(name: str) -> Locked:
    """Return version and hashes by package."""
    text = (REQUIREMENTS / f"{name}.txt").read_text().replace("\\\n", " ")
    found: Locked = {}
    for line in text.splitlines():
        pin, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
        required = Requirement(pin)
        version = str(required.specifier).removeprefix("==")
        found[canonicalize_name(required.name)] = version, frozenset(hashes)
    return found


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(name): version for name, version in (x.split("==") for x in lines)}


def declared(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"]]
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_hashes_and_no_address(name: str) -> None:
    for package, (version, hashes) in locked(name).items():
        assert version, package
        assert hashes, package
        assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in hashes), package
    for file in (f"{name}.txt", "build.in", "tools.in", "site.in", "clients.in"):
        text = (REQUIREMENTS / file).read_text()
        assert not re.search(r"://|--index-url|--extra-index|--find-links|--trusted", text), file


@pytest.mark.parametrize("name", ["runtime", "development", "build"])
def test_versions_are_those_of_the_constraints(name: str) -> None:
    """``make lock`` after a change of constraints.txt or of pyproject.toml."""
    wanted = constraints()
    # colorama is for Windows, where nobody runs a scheduler.
    differing = {
        package: (version, wanted.get(package))
        for package, (version, _) in locked(name).items()
        if package != "colorama" and wanted.get(package) != version
    }
    assert differing == {}


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("runtime", ("controller",)),
        ("development", ("bench", "controller", "dev", "testing")),
    ],
)
def test_all_dependencies_are_locked(name: str, extras: tuple[str, ...]) -> None:
    found = locked(name)
    for requirement in declared(*extras):
        version, _ = found[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_developers_have_what_the_image_has() -> None:
    development = locked("development")
    for name in ("runtime", "build"):
        for package, pin in locked(name).items():
            assert development[package] == pin, package


def test_the_image_and_the_makefile_install_by_hash() -> None:
    steps = (ROOT / "Dockerfile").read_text() + (ROOT / "Makefile").read_text()
    locks = re.findall(r"pip install (.*(?:-r|--requirement) requirements/\S+)", steps)
    assert len(locks) == 7
    assert all("--require-hashes" in line or "$(LOCKED)" in line for line in locks)
    assert "--require-hashes --only-binary :all:" in steps


COMMAND = re.compile(r"""(?:pip|pipx|uv) [^\n`]*install[^\n`]*?[ "']proreus(?![-\w./])""")
REQUIRED = re.compile(r"""["']proreus(?:\[[\w,]+\])?(?:[<>=~!][^"']*)?["']""")


def test_nothing_is_installed_by_the_name_proreus_from_an_index() -> None:
    """The name may be another's there: a wheel is named by its file."""
    assert COMMAND.search('pip install "proreus[testing]"')
    assert not COMMAND.search("pip install dist/proreus-0.1.0-py3-none-any.whl")
    assert REQUIRED.search('test = ["pytest", "proreus[testing]"]')
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for folder in ("README.md", "src", "docs", "examples", "deploy")
        for file in sorted([ROOT / folder, *(ROOT / folder).rglob("*")])
        if file.suffix in (".py", ".md", ".jinja", ".yaml", ".toml")
        for pattern in (COMMAND, *((REQUIRED,) if "pyproject.toml" in file.name else ()))
        for match in pattern.finditer(file.read_text())
    ]
    assert found == []
