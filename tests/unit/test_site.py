"""The documentation site: each page is in its navigation, and its hooks adapt our Markdown."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_navigation_has_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"^ *- (?:.+: )?(\S+\.md)$", text, re.M)
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    assert sorted(listed) == sorted(str(page.relative_to(ROOT)) for page in pages)


@pytest.mark.parametrize(
    ("markdown", "adapted"),
    [
        ("see [it](plugins) and [that](a.md#b)", "see [it](plugins/README.md) and [that](a.md#b)"),
        ("[it](plugins/), [more](nowhere)", "[it](plugins/README.md), [more](nowhere)"),
        ("- a\n  - b", "- a\n    - b"),
        ("```python a.py\n  - [b](plugins)\n```", '```python title="a.py"\n  - [b](plugins)\n```'),
        ("```\na b\n```", "```\na b\n```"),
    ],
)
def test_pages_are_adapted_to_python_markdown(hooks, markdown, adapted) -> None:
    assert hooks.adapted(markdown, ROOT / "docs") == adapted
