"""The pages name packages, modules, functions, files and headings that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "proreus"
TOUR = ROOT / "ARCHITECTURE.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")])
NEW_PROJECT = {
    "writing-plugins.md": ("src/gpu_headroom.py", "tests/test_gpu_headroom.py"),
    "first-hour.md": ("src/gpu_headroom.py",),
}
"""Files that the reader of a page writes."""


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def quoted(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


def defined_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names of classes, functions, variables and fields."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Every package and module of proreus, and every name that one of them defines."""
    found = {"proreus"}
    for file in SOURCES.rglob("*.py"):
        found |= {file.stem, file.parent.name, *defined_in(ast.parse(file.read_text()))}
    return found


def test_the_tour_has_a_sentence_for_every_room() -> None:
    rooms = set(re.findall(r"^\| `(\w+)/` \| \w", TOUR.read_text(), flags=re.MULTILINE))
    assert rooms == {init.parent.name for init in SOURCES.glob("*/__init__.py")}


def test_the_tour_names_what_there_is(known: set[str]) -> None:
    names = {text.removesuffix("()") for text in quoted(TOUR)}
    dotted = [name for name in names if re.fullmatch(r"[A-Za-z_][\w./]*", name)]
    assert len(dotted) > 50

    missing = {
        name
        for name in dotted
        if not (ROOT / name).exists() and not known.issuperset(re.split(r"[./]", name.strip("/")))
    }
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_files_that_are_named_exist(page: Path) -> None:
    paths = [
        text.partition("::")[0]
        for text in quoted(page)
        if re.fullmatch(r"(src|tests|docs|deploy|examples)/[\w./-]+(::\w+)?", text)
    ]
    written = NEW_PROJECT.get(page.name, ())

    assert [path for path in paths if path not in written and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        if link.startswith("http"):
            continue
        assert target.exists(), link
        assert not fragment or fragment in heading_ids(target), link


def heading_ids(page: Path) -> set[str]:
    """Return the ids that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).strip().replace(" ", "-") for one in headings}
