"""Explanations as JSON: an instant is a text of RFC 3339 there, and seconds in the values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from proreus.insight.explain.explanation import Explanation

E = TypeVar("E", bound=Explanation)

_INSTANTS = frozenset(
    {
        "at",
        "firstAt",
        "boundAt",
        "endedAt",
        "since",
        "until",
        "oldestSince",
        "retriedWithoutEventAt",
    }
)


def to_document(explanation: Explanation) -> Any:
    """Return an explanation as JSON has it."""
    return _with_instants(msgspec.to_builtins(explanation), _as_text)


def from_json(body: bytes, kind: type[E]) -> E:
    """Return the explanation that a document has; raises ``msgspec.ValidationError``."""
    return msgspec.convert(_with_instants(msgspec.json.decode(body), _as_seconds), kind)


def _with_instants(document: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(document, dict):
        return {
            key: convert(value) if key in _INSTANTS else _with_instants(value, convert)
            for key, value in document.items()
        }
    if isinstance(document, list | tuple):
        return [_with_instants(one, convert) for one in document]
    return document


def _as_text(seconds: Any) -> Any:
    if not isinstance(seconds, float | int):
        return seconds
    instant = datetime.fromtimestamp(seconds, UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _as_seconds(text: Any) -> Any:
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else text
