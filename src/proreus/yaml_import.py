"""PyYAML whose regular expressions are compiled when they are first used.

To compile the one for characters that YAML forbids takes as long as all else that importing PyYAML
does; libyaml checks them by itself.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Any


def import_yaml() -> None:
    """Import PyYAML, if it is yet to be imported; no other thread may run."""
    if "yaml" in sys.modules:
        return
    compile_now = re.compile
    re.compile = _Pattern  # type: ignore[assignment]
    try:
        import_module("yaml")
    finally:
        re.compile = compile_now


class _Pattern:
    """In the place of a compiled pattern."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._given), name)
        # Is found without this method the next time.
        setattr(self, name, found)
        return found
