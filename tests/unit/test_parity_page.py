"""docs/parity.md and docs/plugins name what is there, and all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proreus.base.known_faults import KnownFault
from proreus.plugins import IN_TREE_PLUGINS

TESTS = Path(__file__).resolve().parent.parent
DOCS = TESTS.parent / "docs"
PAGE = (DOCS / "parity.md").read_text()
PROOFS = PAGE.partition("## Every feature")[2]


def page_of(plugin: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", plugin).lower() + ".md"


@pytest.mark.parametrize("name", [plugin.name for plugin in IN_TREE_PLUGINS])
def test_every_plugin_has_a_proof_and_a_page(name: str) -> None:
    assert re.search(rf"^\| .*\b{name}\b", PROOFS, re.MULTILINE)
    assert (DOCS / "plugins" / page_of(name)).exists()
    assert f"[{name}]({page_of(name)})" in (DOCS / "plugins" / "README.md").read_text()


@pytest.mark.parametrize(
    "proof", sorted(set(re.findall(r"`((?:unit|integration|controlplane)/[^`]+)`", PROOFS)))
)
def test_every_proof_exists(proof: str) -> None:
    path, _, name = proof.partition("::")
    assert (TESTS / path).exists()
    assert not name or f"def {name}(" in (TESTS / path).read_text()


@pytest.mark.parametrize("correction", KnownFault, ids=lambda one: one.flag)
def test_every_correction_is_named_with_its_report(correction: KnownFault) -> None:
    section = PAGE.partition("## Faults that can be corrected")[2].partition("\n## ")[0]
    assert f"| `{correction.flag}` | {correction.report} " in section


def test_every_recorded_family_is_named() -> None:
    recorded = {
        family
        for row in re.findall(r"^\| [^|]+ \| ([^|]*) \|", PROOFS, re.MULTILINE)
        for family in re.findall(r"`(\w+)`", row)
    }
    cases = (TESTS / "conformance" / "cases").glob("*/*.jsonl.gz")
    assert recorded == {path.name.removesuffix(".jsonl.gz") for path in cases}


def test_links_lead_somewhere() -> None:
    for page in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
