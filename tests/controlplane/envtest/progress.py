"""What a long run says while it runs."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Print a line at once, past pytest's capture."""
    print(line, file=sys.__stderr__, flush=True)
