"""CEL expressions over ``device``, selectors above all: compiled once, evaluated by cel-cpp.

Compiled by the checker of ``environments``, evaluated by its evaluator. The reasons are in
docs/adr/0010, the differences from Kubernetes in docs/plugins/dynamic-resources.md: cel-cpp ends an
evaluation after 10,000 steps of macros, kube-scheduler at a cost of 1,000,000, which is later. What
may cost more, or more memory than is good, is not evaluated (``cost``).

Example: ``device.attributes["gpu.example.com"].model == "h100"``. A device of another driver lacks
the domain, which is an error in cel-cpp. It is evaluated again with the domain as an empty map, as
in Kubernetes; now the key ``model`` is missing, and that is an error in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from cel_expr_python import cel

from proreus.base.bounded_cache import BYTES_AN_ENTRY, BoundedCache
from proreus.base.errors import ProreusError
from proreus.objects.protobuf import BYTES, Field, encode_message, fields
from proreus.plugins.dynamic_resources.cel import environments
from proreus.plugins.dynamic_resources.cel.cost import (
    LIMIT_EXCEEDED,
    Bound,
    bound_of,
    is_affordable,
)

T = TypeVar("T")

Attribute = bool | int | str | bytes | list[Any]
Domains = dict[str, dict[str, Any]]
"""Attributes or capacities by domain and name."""

_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"$')
_EXISTS_ONE = re.compile(r"\.exists_one(?=\(\s*\w+\s*,\s*\w+\s*,)")
_UNSUPPORTED = "attribute {}: value is invalid or its type is not supported by this version"
_BARE_DEVICE = "undeclared reference to 'device' "


class CelError(ProreusError):
    """An expression that does not compile, or fails for a device."""


class DeviceView:
    """A device as expressions see it.

    ``attributes`` and ``capacity``: versions and quantities in the bytes of ``values``.
    ``unsupported``: names of further attributes, whose values no expression can have.
    """

    __slots__ = ("attributes", "bound", "unsupported", "variables")

    def __init__(
        self,
        driver: str,
        attributes: Domains,
        capacity: Domains,
        multiple_allocations: bool,
        unsupported: frozenset[str] = frozenset(),
    ) -> None:
        self.attributes = attributes
        self.unsupported = unsupported
        self.variables: dict[str, Any] = {
            "driver": driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": multiple_allocations,
        }
        self.bound = bound_of(self.variables).rounded()

    def activation(self, domains: set[str]) -> Any:
        """Return the variables in the evaluator's form, with additional, empty, domains."""
        # Not kept: values that an evaluation computes stay with them.
        variables = dict(self.variables)
        for name in ("attributes", "capacity") if domains else ():
            variables[name] = {**{domain: {} for domain in domains}, **variables[name]}
        fields_alone = {f"device.{name}": value for name, value in variables.items()}
        return environments.evaluator().Activation({"device": self.variables, **fields_alone})


class CELExpression(Generic[T]):
    """One compiled expression, and what becomes of its results, by subclass.

    ``compile_error_prefix``: how the text begins for what does not compile.
    """

    __slots__ = ("_affordable", "_program", "_serialized", "error", "expression")

    compile_error_prefix = ""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.error = ""
        """Why it does not compile; empty if it does."""
        self._program: Any = None
        self._serialized = b""
        self._affordable: dict[Bound, bool] = {}
        try:
            checked = _checked(expression)
            self.error = self.type_error(checked.return_type().name())
            if self.error:
                return
            self._serialized = checked.serialize()
            evaluator = environments.evaluator()
            self._program = evaluator.deserialize(with_optionals(self._serialized))
        except RuntimeError as error:
            self.error = f"{self.compile_error_prefix}{error}"

    def type_error(self, returned: str) -> str:
        """Return the fault of an expression of this type; empty if there is none."""
        raise NotImplementedError

    def converted(self, result: Any) -> T:
        """Convert a ``cel.Value`` that is no error; raises ``CelError``."""
        raise NotImplementedError

    def evaluate(self, device: DeviceView) -> T:
        """Return the result for a device; raises ``CelError`` if evaluation fails."""
        if not self._is_affordable(device.bound):
            raise CelError(LIMIT_EXCEEDED)
        domains: set[str] = set()
        while True:
            try:
                result = self._program.eval(device.activation(domains))
            except RuntimeError as error:  # the limit of macro steps
                raise CelError(str(error)) from None
            if result.type() != cel.Type.ERROR:
                return self.converted(result)
            # In Kubernetes a domain without attributes is an empty map, not an error. cel-cpp takes
            # no maps with defaults from Python, so the missing domain is added and the expression
            # evaluated again; each round adds one domain, so it ends.
            try:
                text = str(result.value())
            except TypeError:  # an optional, which Python cannot hold
                raise CelError("unsupported CEL return type: optional") from None
            missed = _MISSING_KEY.search(text)
            if missed is not None and missed[1] in device.unsupported:
                raise CelError(_UNSUPPORTED.format(missed[1]))
            if missed is None or missed[1] in domains or missed[1] in device.attributes:
                raise CelError(_error_message(text, missed))
            domains.add(missed[1])

    def _is_affordable(self, device: Bound) -> bool:
        affordable = self._affordable.get(device)
        if affordable is None:
            in_python = environments.functions_in_python()
            affordable = is_affordable(self._serialized, device, in_python)
            self._affordable[device] = affordable
        return affordable


class CELSelector(CELExpression[bool]):
    """A compiled selector; made by ``compile_selector``."""

    __slots__ = ()

    def matches(self, device: DeviceView) -> bool:
        """Return whether a device is selected; raises ``CelError`` if evaluation fails."""
        return self.evaluate(device)

    def type_error(self, returned: str) -> str:
        """Return kube-scheduler's text for an expression that cannot select devices."""
        # Attributes have any type until they are looked up, hence dyn.
        if returned in ("BOOL", "DYN"):
            return ""
        return f"must evaluate to bool or the unknown type, not {returned.lower()}"

    def converted(self, result: Any) -> bool:
        """Return whether the device is selected."""
        if result.type().name() != "BOOL":
            raise CelError(f"expression returned {result.type().name()}, expected bool")
        return bool(result.value())


def _error_message(error: str, missed: re.Match[str] | None) -> str:
    return error.partition(": ")[2] or error if missed is None else f"no such key: {missed[1]}"


_compiled: BoundedCache[tuple[type[CELExpression[Any]], str], Any] = BoundedCache(32 * 2**20)
_BYTES_A_CHARACTER = 110
"""The most bytes of a compiled expression in C++: ``true || true || …`` has the most operators."""

E = TypeVar("E", bound=CELExpression[Any])


def compile_selector(expression: str) -> CELSelector:
    """Compile a selector; ``error`` of the result says whether that succeeded."""
    return compile_expression(CELSelector, expression)


def compile_expression(kind: type[E], expression: str) -> E:
    """Compile an expression; ``error`` of the result says whether that succeeded."""
    # No feature gate matters: the expression is stored, so an API server has accepted it once, and
    # kube-scheduler compiles it as a stored expression, too. Errors are cached like programs, since
    # the same claim comes back with each attempt.
    key = kind, expression
    compiled: E | None = _compiled.get(key)
    if compiled is None:
        compiled = kind(expression)
        size_bytes = BYTES_AN_ENTRY + _BYTES_A_CHARACTER * len(expression)
        _compiled.put(key, compiled, size_bytes)
    return compiled


def _checked(expression: str) -> Any:
    # cel-cpp has the macro of two variables under another name.
    expression = _EXISTS_ONE.sub(".existsOne", expression)
    try:
        return environments.checker().compile(expression)
    except RuntimeError as error:
        # ``device`` itself, as in ``cel.bind(d, device, …)``, is a map of anything. Only such
        # expressions lose the type checks on its fields.
        if _BARE_DEVICE in str(error):
            return environments.lenient_checker().compile(expression)
        raise


# ---- functions that return optionals -----------------------------------------------------------

RETURN_OPTIONALS = frozenset({"validate", "named"})
"""Names of the functions, as in calls: behind the dot of ``format.named``."""

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
"""By message of ``cel.expr``, the fields that can hold a call, by number, and their message."""

_CALL, _FUNCTION, _ARGUMENTS = 6, 2, 3


def with_optionals(expression: bytes) -> bytes:
    """Return a serialised expression in which calls of such functions return optionals.

    The evaluator takes no optionals from Python. So these functions return an empty value for none,
    and their calls are wrapped in CEL's own ``optional.ofNonZeroValue`` before the expression runs.
    """
    # Almost no selector calls one of them.
    if not any(name.encode() in expression for name in RETURN_OPTIONALS):
        return expression
    return _rewritten(expression, "any")


def _rewritten(message: bytes, kind: str) -> bytes:
    # Only messages that can hold a call are taken apart. The rest is copied byte by byte, so that
    # fields of a newer cel-cpp are kept.
    holders = _HOLDERS[kind]
    parts: list[Field] = []
    wrapped = False
    for number, wire_type, content in fields(message):
        holder = holders.get(number)
        if holder is not None:
            wrapped = wrapped or (holder == "call" and _returns_optional(content))
            content = _rewritten(content, holder)
        parts.append((number, wire_type, content))
    rewritten = encode_message(parts)
    if not wrapped:
        return rewritten
    call = encode_message([(_FUNCTION, BYTES, _WRAPPER), (_ARGUMENTS, BYTES, rewritten)])
    return encode_message([(_CALL, BYTES, call)])


def _returns_optional(call: bytes) -> bool:
    names = (content for number, _, content in fields(call) if number == _FUNCTION)
    name = next(names, b"")
    return name.decode().rpartition(".")[2] in RETURN_OPTIONALS
