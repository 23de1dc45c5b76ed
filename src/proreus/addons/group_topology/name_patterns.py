"""Regular expressions that come from objects of the cluster, held against names.

RE2 reads them as Go's ``regexp`` does, and takes time linear in a name. Python's ``re`` goes back
and tries again: ``(a+)+$`` takes seconds for a name of 26 letters, and nothing else is done then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import re2

from proreus.framework import ProreusError

MAX_INSTRUCTIONS = 2_000
"""Of a compiled pattern: each character of a name may cost a step for each of them. Some 170 names
of nodes fit into one pattern."""

_MAX_MEMORY = 1 << 20
"""Bytes for a pattern and the states found while it is used. With less, patterns of as many
instructions as are allowed are matched a hundred times slower."""

_OF_ONE_TEXT = ("(?", r"\A", r"\z", r"\Q")
"""What may mean something else where each name is a line of a text, or reach beyond the pattern."""


class PatternError(ProreusError):
    """A text is no regular expression, or a larger one than may be used."""


class NamePattern:
    """A regular expression in RE2's syntax.

    Raises:
        PatternError: it cannot be read, or has more than ``MAX_INSTRUCTIONS``.
    """

    def __init__(self, text: str) -> None:
        shown = repr(text if len(text) <= 60 else f"{text[:57]}...")
        try:
            self._pattern = _compiled(text)
            # For all names in one call, each a line: a call for each takes twenty times as long.
            in_lines = not any(part in text for part in _OF_ONE_TEXT)
            self._lines = _compiled(f"(?m)^.*?(?:{text}).*$") if in_lines else None
        except UnicodeEncodeError as error:  # half of a surrogate pair
            raise PatternError(f"{shown}: not UTF-8") from error
        except re2.error as error:
            raise PatternError(f"{shown}: {error.args[0].decode(errors='replace')}") from error
        size = self._pattern.programsize
        if size > MAX_INSTRUCTIONS:
            raise PatternError(
                f"{shown}: {size} instructions, at most {MAX_INSTRUCTIONS} are allowed"
            )

    def search(self, names: Collection[str]) -> set[str]:
        """Return the names that contain a match. None of them is empty or has a line break."""
        if not names:
            return set()
        if self._lines is None:
            return {name for name in names if self._pattern.search(name)}
        return {name.decode() for name in self._lines.findall("\n".join(names).encode())}


def forget_patterns() -> None:
    """Free what RE2's module keeps of the last 128 patterns, up to 1 MiB each."""
    re2.purge()


def _compiled(text: str) -> Any:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False  # it would write to stderr, past the log
    options.never_capture = True
    options.never_nl = True
    return re2.compile(text, options)
