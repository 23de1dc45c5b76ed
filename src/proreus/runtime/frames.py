"""Local variables of frames that go on running."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any


def local_variable(frame: FrameType, name: str) -> Any:
    """Return what a local variable of a function refers to; None if there is no such variable."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED or name not in code.co_varnames:
        return None
    variables = frame.f_locals
    value = variables.get(name)
    # Before Python 3.13 (PEP 667) this is a copy of all local variables that stays with the frame:
    # a coroutine that does not end, such as a watch, would keep for good what it handles now.
    if isinstance(variables, dict):
        variables.clear()
    return value
