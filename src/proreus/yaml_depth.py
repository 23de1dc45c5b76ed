"""Reads YAML, but not what is nested so deep that reading it would end the process.

libyaml builds a document by recursion in C, without a limit: some 16,000 levels, 16 KB of ``[``,
overflow the stack. Its parser alone does not recurse.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

MAX_DEPTH = 1_000
"""Levels of lists and mappings; the deepest type of the Kubernetes API, a schema, has hundreds."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where PyYAML has it."""

_IN_ONE_LINE = re.compile(rb"[-?](?:\s|\Z)")
_UNCOUNTED = (b"\0", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""Signs of UTF-16 (or of no YAML), and the line breaks that only Unicode knows."""


def load(content: bytes) -> Any:
    """Return the document as Python objects; raises ``yaml.YAMLError``, as ``check_depth`` does."""
    check_depth(content)
    return yaml.load(content, Loader=LOADER)


def check_depth(content: bytes) -> None:
    """Raise ``yaml.MarkedYAMLError`` if lists and mappings are nested deeper than ``MAX_DEPTH``."""
    if _most_levels(content) <= MAX_DEPTH:
        return
    depth = 0
    for event in yaml.parse(content, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                mark: Any = event.start_mark
                problem = f"nested deeper than {MAX_DEPTH:,} levels"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _most_levels(content: bytes) -> int:
    """Return a bound for the depth, found much faster than by parsing."""
    if any(sign in content for sign in _UNCOUNTED):
        return MAX_DEPTH + 1
    # Most brackets are `{}` and `[]`, which hold nothing.
    flow = sum(content.count(a) - content.count(b) for a, b in ((b"[", b"[]"), (b"{", b"{}")))
    # Each level of a block is further to the right, or begins with `- ` or `? ` on the same line.
    block = max(
        (
            len(line) - len(line.lstrip(b" ")) + len(_IN_ONE_LINE.findall(line))
            for line in content.splitlines()
        ),
        default=0,
    )
    # A bracket may open two levels (`[a: [` has a mapping of one pair in each list), and so may a
    # column (a list in a mapping need not be further to the right).
    return 2 * (flow + block + 1)
