"""The texts of ``k8s.io/apimachinery/pkg/util/validation/field``: path, kind of fault, detail.

Operators search for these texts when a file is refused, so that they are exactly upstream's.
"""

import json
from collections.abc import Iterable

from proreus.config.durations import quote

__all__ = ["child", "duplicate", "forbidden", "invalid", "item", "required", "unsupported"]


def child(path: str, *names: str) -> str:
    """Return the path of a field; an empty path is the root."""
    return ".".join((path, *names) if path else names)


def item(path: str, index: int) -> str:
    """Return the path of a list's item."""
    return f"{path}[{index}]"


def invalid(path: str, value: object, detail: str) -> str:
    """Return the error of a value that is not allowed."""
    return f"{path}: Invalid value: {_shown(value)}: {detail}"


def required(path: str, detail: str = "") -> str:
    """Return the error of a missing or empty value."""
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def duplicate(path: str, value: object) -> str:
    """Return the error of a value that must be unique."""
    return f"{path}: Duplicate value: {_shown(value)}"


def unsupported(path: str, value: str, supported: Iterable[str]) -> str:
    """Return the error of a value that is not in an enumeration."""
    allowed = ", ".join(quote(text) for text in supported)
    return f"{path}: Unsupported value: {_shown(value)}: supported values: {allowed}"


def forbidden(path: str, detail: str) -> str:
    """Return the error of a field that is not allowed in this context."""
    return f"{path}: Forbidden: {detail}"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return quote(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
