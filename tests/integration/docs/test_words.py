"""docs/words.md leads to names that proreus has."""

from __future__ import annotations

import re
from pathlib import Path

from proreus import framework
from proreus.engine import queue

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "words.md").read_text()


def section(title: str) -> str:
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return found


def answers(title: str) -> list[str]:
    """Return the quoted names of the right column of a section's table."""
    rows = re.findall(r"^\| .* \| (.*) \|$", section(title), re.M)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_methods_of_plugins_exist() -> None:
    base = None
    found = 0
    for text in answers("Plugin methods"):
        name, dot, method = text.partition("(")[0].partition(".")
        if dot and hasattr(framework, name):
            base = getattr(framework, name)
            assert hasattr(base, method), text
        elif hasattr(base, name):
            assert base is not None
        else:
            assert (
                hasattr(framework, name)
                or name in ("proreus", "None")
                or name.startswith(("--", "frozenset"))
            ), text
        found += 1
    assert found > 25


def test_the_members_of_the_handle_exist() -> None:
    members = re.findall(r"`handle\.(\w+)", section("The handle"))
    assert len(members) >= 10
    assert [name for name in members if not hasattr(framework.Handle, name)] == []


def test_the_modules_of_the_queue_exist() -> None:
    modules = {file.stem for file in Path(queue.__path__[0]).glob("*.py")}
    named = re.findall(r"`queue/(\w+)`", PAGE)
    assert len(named) >= 5
    assert modules.issuperset(named)
