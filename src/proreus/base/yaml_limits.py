"""Reads YAML within limits: a small text can overflow the stack, or stand for gigabytes.

libyaml builds a document by recursion in C, without a limit: some 16,000 levels, 16 KB of ``[``,
overflow the stack. An alias costs nothing while the text is read, but whoever converts or encodes
the result visits what it refers to once for each alias: nine lines of ten aliases each are a
billion values. libyaml's parser alone neither recurses nor follows aliases, so it counts both here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

MAX_DEPTH = 1_000
"""Levels of lists and mappings; the deepest type of the Kubernetes API, a schema, has hundreds."""

MAX_ALIASED_SIZE = 100_000
"""The most that aliases may repeat in all, in values and kilobytes of text."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where PyYAML has it."""

_CHARACTERS_OF_A_VALUE = 1_000
_IN_ONE_LINE = re.compile(rb"[-?](?:\s|\Z)")
_UNCOUNTED = (b"\0", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""Signs of UTF-16 (or of no YAML), and the line breaks that only Unicode knows."""


class LimitExceeded(yaml.MarkedYAMLError):
    """YAML that is refused, whether it is well-formed or not; ``line`` begins with 1."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.line: int = mark.line + 1


def load(content: bytes) -> Any:
    """Return the document as Python objects; raises ``yaml.YAMLError``, as ``check`` does."""
    check(content)
    return yaml.load(content, Loader=LOADER)


def check(content: bytes) -> None:
    """Raise ``LimitExceeded`` for too many levels, and for aliases that repeat too much.

    Also for a value that contains itself.
    """
    aliases = b"&" in content and b"*" in content
    if aliases or _most_levels(content) > MAX_DEPTH:
        _Sizes().count(yaml.parse(content, Loader=LOADER))


class _Sizes:
    """Sizes of the values that have an anchor, each with all that its aliases repeat."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, int]] = []
        """The lists and mappings around the current value, with the size before each."""
        self._of: dict[str, int] = {}
        self._size = 0
        self._aliased = 0

    def count(self, events: Iterable[Any]) -> None:
        """Raise ``LimitExceeded`` at the first event that exceeds a limit."""
        for event in events:
            match event:
                case yaml.CollectionStartEvent():
                    self._begin(event)
                case yaml.CollectionEndEvent():
                    anchor, before = self._open.pop()
                    self._end(anchor, before)
                case yaml.ScalarEvent():
                    before = self._size
                    self._size += 1 + len(event.value) // _CHARACTERS_OF_A_VALUE
                    self._end(event.anchor, before)
                case yaml.AliasEvent():
                    self._repeat(event)
                case yaml.DocumentStartEvent():
                    self._of.clear()

    def _begin(self, event: Any) -> None:
        if len(self._open) == MAX_DEPTH:
            raise _refused(event, f"nested deeper than {MAX_DEPTH:,} levels")
        self._open.append((event.anchor, self._size))
        self._size += 1
        # Of no size yet: an alias to a value inside of which it stands is refused.
        if event.anchor is not None:
            self._of[event.anchor] = 0

    def _end(self, anchor: str | None, before: int) -> None:
        if anchor is not None:
            self._of[anchor] = self._size - before

    def _repeat(self, event: Any) -> None:
        # The loader reports an anchor that does not exist.
        size = self._of.get(event.anchor, 1)
        if size == 0:
            raise _refused(event, f"anchor '{event.anchor}' value contains itself")
        self._size += size
        self._aliased += size
        if self._aliased > MAX_ALIASED_SIZE:
            raise _refused(event, "document contains excessive aliasing")


def _refused(event: Any, problem: str) -> LimitExceeded:
    return LimitExceeded(problem, event.start_mark)


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
