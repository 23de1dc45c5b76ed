"""Functions whose answer is optional: the evaluator takes no optionals from Python.

So they answer with an empty value where there is none, and the checked expression is rewritten
before it runs: their calls get CEL's own ``optional.ofNonZeroValue`` around them. cel-cpp hands
expressions out in protobuf (``cel.expr.CheckedExpr``), of which the few messages that can hold a
call are taken apart here, and the rest is copied as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.objects.protobuf import BYTES, Field, encode_message, fields

RETURN_OPTIONALS = frozenset({"validate", "named"})
"""Names of the functions, as they stand in calls: behind the dot of ``format.named``."""

_WRAPPER = b"optional.ofNonZeroValue"

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

_CALL, _FUNCTION, _ARGUMENTS = 6, 2, 3


def with_optionals(expression: bytes) -> bytes:
    """Return a serialised expression in which the calls of such functions answer optionals."""
    if not any(name.encode() in expression for name in RETURN_OPTIONALS):
        return expression
    return _rewritten(expression, "any")


def _rewritten(message: bytes, kind: str) -> bytes:
    holders = _HOLDERS[kind]
    parts: list[Field] = []
    wrapped = False
    for number, wire_type, content in fields(message):
        holder = holders.get(number)
        if holder is not None:
            wrapped = wrapped or (holder == "call" and _answers_optional(content))
            content = _rewritten(content, holder)
        parts.append((number, wire_type, content))
    rewritten = encode_message(parts)
    if not wrapped:
        return rewritten
    call = encode_message([(_FUNCTION, BYTES, _WRAPPER), (_ARGUMENTS, BYTES, rewritten)])
    return encode_message([(_CALL, BYTES, call)])


def _answers_optional(call: bytes) -> bool:
    names = (content for number, _, content in fields(call) if number == _FUNCTION)
    name = next(names, b"")
    return name.decode().rpartition(".")[2] in RETURN_OPTIONALS
