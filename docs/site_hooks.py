"""Hooks of mkdocs: what GitHub's Markdown allows in our pages, and Python-Markdown does not.

``make site`` uses them (mkdocs.yml). The pages stay as they are.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_FENCED = re.compile(r"^(```.*?^```)$", re.M | re.S)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return a page as Python-Markdown reads it."""
    folder = Path(config["docs_dir"], page.file.src_uri).parent
    return adapted(markdown, folder)


def adapted(markdown: str, folder: Path) -> str:
    """Return the text of a page, which is in ``folder``, as Python-Markdown reads it."""
    parts = _FENCED.split(markdown)
    parts[::2] = (_prose(part, folder) for part in parts[::2])
    parts[1::2] = map(_titled, parts[1::2])
    return "".join(parts)


def _prose(text: str, folder: Path) -> str:
    """Lead links to folders to their README, and indent nested lists by four spaces."""

    def to_page(link: re.Match[str]) -> str:
        page = posixpath.join(link[1], "README.md")
        return f"]({page})" if (folder / page).is_file() else link[0]

    return re.sub(r"^  (?=[-*] )", "    ", re.sub(r"\]\(([\w./-]+)\)", to_page, text), flags=re.M)


def _titled(fence: str) -> str:
    """Make the name of a file behind a fence's language the title of the block."""
    return re.sub(r"\A```(\w+) (.+)$", r'```\1 title="\2"', fence, count=1, flags=re.M)
