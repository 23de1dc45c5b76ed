"""Functions whose answer is optional: the evaluator takes no optionals from Python.

So they answer with an empty value where there is none, and the checked expression is rewritten
before it runs: their calls get CEL's own ``optional.ofNonZeroValue`` around them. cel-cpp hands
expressions out in protobuf (``cel.expr.CheckedExpr``), of which the few messages that can hold a
call are taken apart here, and the rest is copied as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

ANSWER_OPTIONALS = frozenset({"validate", "named"})
"""Names of the functions, as they stand in calls: behind the dot of ``format.named``."""

_WRAPPER = b"optional.ofNonZeroValue"

_LENGTH_DELIMITED = 2
_FIXED_SIZES = {1: 8, 5: 4}

_HOLDERS: Mapping[str, Mapping[int, str]] = {
    "any": {2: "checked"},
    "checked": {4: "expr"},
    "expr": {5: "select", 6: "call", 7: "list", 8: "struct", 9: "comprehension"},
    "select": {1: "expr"},
    "call": {1: "expr", 3: "expr"},
    "list": {1: "expr"},
    "struct": {2: "entry"},
    "entry": {3: "expr", 4: "expr"},
    "comprehension": {2: "expr", 4: "expr", 5: "expr", 6: "expr", 7: "expr"},
}
"""The fields of each message that can hold a call, by number, and what message they are."""

_CALL, _FUNCTION = 6, 2


class _Field(NamedTuple):
    """``content``: of a length-delimited field, else None. ``whole``: tag and all."""

    number: int
    content: bytes | None
    whole: bytes


def with_optionals(expression: bytes) -> bytes:
    """Return a serialised expression in which the calls of such functions answer optionals."""
    if not any(name.encode() in expression for name in ANSWER_OPTIONALS):
        return expression
    return _rewritten(expression, "any")


def _rewritten(message: bytes, kind: str) -> bytes:
    holders = _HOLDERS[kind]
    parts = []
    wrapped = False
    for number, content, whole in _fields(message):
        holder = holders.get(number)
        if content is None or holder is None:
            parts.append(whole)
            continue
        wrapped = wrapped or (holder == "call" and _answers_optional(content))
        parts.append(_field(number, _rewritten(content, holder)))
    rewritten = b"".join(parts)
    if not wrapped:
        return rewritten
    call = _field(_FUNCTION, _WRAPPER) + _field(3, rewritten)
    return _field(_CALL, call)


def _answers_optional(call: bytes) -> bool:
    names = (content for number, content, _ in _fields(call) if number == _FUNCTION)
    name = next(names, None) or b""
    return name.decode().rpartition(".")[2] in ANSWER_OPTIONALS


# ---- protobuf's wire format ----------------------------------------------------------------------


def _fields(message: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(message):
        begin = at
        tag, at = _varint(message, at)
        wire_type = tag & 7
        content = None
        if wire_type == _LENGTH_DELIMITED:
            size, at = _varint(message, at)
            content = message[at : at + size]
            at += size
        elif wire_type in _FIXED_SIZES:
            at += _FIXED_SIZES[wire_type]
        else:
            _, at = _varint(message, at)
        yield _Field(tag >> 3, content, message[begin:at])


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    number, shift = 0, 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _field(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | _LENGTH_DELIMITED) + _encoded(len(content)) + content


def _encoded(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
