"""README.zh.md has the headings, commands, add-ons and links of README.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ENGLISH = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh.md").read_text()


def blocks(text: str) -> list[str]:
    """Return the fenced blocks, without the comments behind commands."""
    return [re.sub(r" +# .*", "", one) for one in re.findall(r"^```.*?^```$", text, re.M | re.S)]


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def levels(text: str) -> list[str]:
    return re.findall(r"^#+", prose(text), re.M)


def links(text: str) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", prose(text))
    return sorted(one for one in found if not one.startswith("README"))


def test_it_has_the_commands_and_samples_of_the_english_one() -> None:
    assert len(blocks(ENGLISH)) > 5
    assert blocks(CHINESE) == blocks(ENGLISH)


def test_it_has_as_many_headings_of_each_level_in_the_same_order() -> None:
    assert levels(CHINESE) == levels(ENGLISH)


def test_it_links_to_the_same_pages() -> None:
    assert links(CHINESE) == links(ENGLISH)


def test_it_has_the_same_rows_in_its_tables() -> None:
    rows = [len(re.findall(r"^\| ", prose(text), re.M)) for text in (ENGLISH, CHINESE)]
    assert rows[0] == rows[1]


def test_both_name_each_other() -> None:
    assert "(README.zh.md)" in ENGLISH
    assert "(README.md)" in CHINESE
