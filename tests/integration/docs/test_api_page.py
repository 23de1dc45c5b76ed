"""docs/api.md is what the source says, and examples and pages import only what it names."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import griffe
import pytest

from proreus.framework import events
from proreus.process.cli.new_plugin import POINTS
from proreus.process.cli.new_plugin.files import files_of
from proreus.process.cli.new_plugin.names import Names

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "api.md"
FOR_PLUGIN_AUTHORS = sorted(
    [
        *ROOT.glob("examples/**/*.py"),
        *ROOT.glob("deploy/**/*.py"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        ROOT / "README.md",
    ]
)


def _load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_page", ROOT / "docs" / "api_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["api_page"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


api_page = _load_generator()


@pytest.fixture(scope="module")
def package() -> griffe.Object:
    return griffe.load("proreus", search_paths=[api_page.SOURCES], allow_inspection=False)


def public_names() -> dict[str, set[str]]:
    """Return the public modules, and the names in each."""
    found = {
        section.module: set(importlib.import_module(section.module).__all__)
        for section in api_page.PAGE
    }
    found["proreus.framework.events"] = set(events.__all__)
    return found


def test_the_committed_page_is_up_to_date() -> None:
    assert PAGE.read_text() == api_page.page(), "docs/api.md is stale: make api-page"


def test_the_page_has_every_public_name_once() -> None:
    listed = Counter((one.module, name) for one in api_page.PAGE for name in one.names.split())
    exported = {
        (module, name)
        for module in {one.module for one in api_page.PAGE}
        for name in importlib.import_module(module).__all__
    }
    assert listed == Counter(exported)


def test_every_public_name_can_be_imported() -> None:
    for module, names in public_names().items():
        for name in names:
            assert hasattr(importlib.import_module(module), name), (module, name)


def classes(package: griffe.Object) -> Iterator[griffe.Class]:
    for section in api_page.PAGE:
        for name in section.names.split():
            found = api_page._resolved(package[f"{section.module}.{name}".partition(".")[2]])
            if isinstance(found, griffe.Class):
                yield found


def test_members_that_are_left_out_exist(package: griffe.Object) -> None:
    by_name = {found.name: found for found in classes(package)}
    for name, hidden in api_page.NOT_PUBLIC.items():
        assert set(hidden.split()) <= by_name[name].members.keys() | {"__init__"}, name


def test_public_classes_and_their_members_are_described(package: griffe.Object) -> None:
    as_handle = package["framework.handle.Handle"].members
    for found in classes(package):
        assert found.docstring is not None, found.name
        if api_page._is_struct(found):
            continue
        for member in api_page.public_members(found):
            in_class = f"``{member.name}``" in found.docstring.value
            same = found.name == "FakeHandle" and member.name in as_handle
            assert member.docstring or in_class or same, f"{found.name}.{member.name}"


# ---- what authors copy --------------------------------------------------------------------------


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from proreus; the name is "" for a whole module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "proreus":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((name, "") for name in names if name.split(".")[0] == "proreus")


def sources_of(file: Path) -> list[str]:
    if file.suffix == ".py":
        return [file.read_text()]
    return re.findall(r"^```python[^\n]*\n(.*?)^```$", file.read_text(), re.MULTILINE | re.DOTALL)


def not_public(sources: list[str]) -> list[tuple[str, str]]:
    public = public_names()
    return [
        (module, name)
        for source in sources
        for module, name in imports_of(source)
        if module not in public or (name and name not in public[module])
    ]


@pytest.mark.parametrize("file", FOR_PLUGIN_AUTHORS, ids=lambda file: str(file.relative_to(ROOT)))
def test_authors_are_shown_public_names_only(file: Path) -> None:
    sources = sources_of(file)
    assert not_public(sources) == []
    # The harness's way into the scheduler is for proreus' own tests.
    assert not any("cluster.scheduler" in source for source in sources)


@pytest.mark.parametrize("columns", [False, True])
def test_new_plugins_import_public_names_only(columns: bool) -> None:
    written = files_of(Names.of("Tried"), POINTS, columns)
    sources = [text for path, text in written.items() if str(path).endswith(".py")]
    assert len(sources) >= 2
    assert not_public(sources) == []


@pytest.mark.parametrize("page", ["writing-plugins.md", "testing-plugins.md", "recipes.md"])
def test_guides_name_public_modules_only(page: str) -> None:
    public = public_names()
    text = (ROOT / "docs" / page).read_text()
    dotted = set(re.findall(r"\bproreus(?:\.\w+)+", text))
    for name in dotted:
        module, _, last = name.rpartition(".")
        assert name in public or last in public.get(module, ()), name
