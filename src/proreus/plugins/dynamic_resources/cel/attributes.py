"""Derived attributes: CEL expressions over ``device`` whose result is an attribute (KEP-5729).

Compiled and evaluated as selectors are (``expressions``), within the same limits. The result is a
boolean, an integer, a text, a semantic version, or a list of one of them. Texts of errors are those
of kube-scheduler's EvaluateDerivedAttribute, which names types as Go does.

Example: ``device.attributes["gpu.example.com"].slot / 4`` of slots 5 and 6 is
1, and the devices match.
"""

from __future__ import annotations

import re
from typing import Any

from proreus.objects.devices import DeviceAttribute
from proreus.plugins.dynamic_resources.cel.expressions import (
    CelError,
    CELExpression,
    compile_expression,
)

_ELEMENTS = frozenset({"BOOL", "INT", "STRING", "DYN", "kubernetes.Semver"})
_ALLOWED = _ELEMENTS | {f"LIST<{name}>" for name in _ELEMENTS}
_CEL_NAMES = {
    "DURATION": "google.protobuf.Duration",
    "NULL": "null_type",
    "TIMESTAMP": "google.protobuf.Timestamp",
}
_GO_TYPES = {
    "BOOL": "bool",
    "BYTES": "[]uint8",
    "DOUBLE": "float64",
    "DURATION": "time.Duration",
    "INT": "int64",
    "LIST": "[]ref.Val",
    "MAP": "map[ref.Val]ref.Val",
    "NULL": "structpb.NullValue",
    "STRING": "string",
    "TIMESTAMP": "time.Time",
    "UINT": "uint64",
}
_QUANTITY = "*resource.Quantity"
_SEMVER = "semver.Version"
_FIELDS = {"bool": "bool", "int64": "int", "string": "string", _SEMVER: "version"}
"""By Go type, how the names of a ``DeviceAttribute``'s two fields for it begin."""


class CELDerivedAttribute(CELExpression[DeviceAttribute]):
    """A compiled derived attribute; made by ``compile_derived_attribute``."""

    __slots__ = ()

    compile_error_prefix = "compilation failed: "

    def type_error(self, returned: str) -> str:
        """Return kube-scheduler's text for an expression whose result is no attribute."""
        # Lists are allowed whatever the gate DRAListTypeAttributes says: the expression is stored,
        # and was valid when the apiserver accepted it.
        if returned in _ALLOWED:
            return ""
        return (
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of "
            f"these scalars, not {_cel_name(returned)}"
        )

    def converted(self, result: Any) -> DeviceAttribute:
        """Return the attribute; raises ``CelError`` for a value that is none."""
        go_type, value = _typed(result)
        if go_type == "[]ref.Val":
            return _list_attribute([_typed(element) for element in value])
        if go_type in _FIELDS:
            return DeviceAttribute(**{f"{_FIELDS[go_type]}_value": value})
        raise CelError(f"unsupported CEL return type: {go_type}")


def compile_derived_attribute(expression: str) -> CELDerivedAttribute:
    """Compile a derived attribute; ``error`` of the result says whether that succeeded."""
    return compile_expression(CELDerivedAttribute, expression)


def _list_attribute(elements: list[tuple[str, Any]]) -> DeviceAttribute:
    # The type of an empty list is not known at run time; no device matches it whatever it is.
    if not elements:
        return DeviceAttribute(string_values=())
    first = elements[0][0]
    if first not in _FIELDS:
        raise CelError(f"unsupported list element type: {first}")
    for place, (go_type, _) in enumerate(elements):
        if go_type != first:
            expected = {"int64": "int", _SEMVER: "semver"}.get(first, first)
            raise CelError(
                f"expected list element at index {place} to be {expected}, got {go_type}"
            )
    values: Any = tuple(value for _, value in elements)
    return DeviceAttribute(**{f"{_FIELDS[first]}_values": values})


def _typed(result: Any) -> tuple[str, Any]:
    """Return the Go type of a ``cel.Value``, and the value; versions as texts."""
    name = result.type().name().partition("<")[0]
    if name != "BYTES":
        # Only what an attribute may be is converted: optionals, for instance, cannot be.
        wanted = name in ("BOOL", "INT", "STRING", "LIST")
        return _GO_TYPES.get(name, name), result.value() if wanted else None
    # See ``values``: without the checker's types, the tag tells what it is.
    value = bytes(result.value())
    if value[:1] == b"v":
        return _SEMVER, value[1:].decode(errors="replace")
    return _QUANTITY if value[:1] == b"q" else _GO_TYPES[name], None


def _cel_name(name: str) -> str:
    """Return the name of a type as cel-go spells it: ``MAP<STRING, DYN>`` is map(string, dyn)."""
    spelled = re.sub(r"\b[A-Z]+\b", lambda found: _CEL_NAMES.get(found[0], found[0].lower()), name)
    return spelled.replace("<", "(").replace(">", ")")
