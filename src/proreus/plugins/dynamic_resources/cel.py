"""Device selectors: CEL expressions over ``device``, compiled once, answered once a device.

cel-cpp evaluates, in the environments of ``cel_environments``. Where they differ from Kubernetes'
one stands in docs/plugins/dynamic-resources.md. kube-scheduler stops an evaluation at a cost of
1,000,000; cel-cpp stops it at 10,000 steps of macros, which is earlier.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from proreus.errors import ProreusError
from proreus.plugins.dynamic_resources.cel_environments import checker, evaluator, lenient_checker
from proreus.plugins.dynamic_resources.cel_optionals import with_optionals

Attribute = bool | int | str | bytes | list[Any]
Domains = dict[str, dict[str, Any]]

_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"$')
_EXISTS_ONE = re.compile(r"\.exists_one(?=\(\s*\w+\s*,\s*\w+\s*,)")
_BARE_DEVICE = "undeclared reference to 'device' "


class CelError(ProreusError):
    """An expression that cannot be compiled, or failed at a device."""


class DeviceView:
    """A device as expressions see it.

    ``attributes`` and ``capacity`` are by domain and name; versions and quantities are in the
    bytes of ``cel_values``.
    """

    __slots__ = ("_activation", "attributes", "variables")

    def __init__(
        self, driver: str, attributes: Domains, capacity: Domains, multiple_allocations: bool
    ) -> None:
        self.attributes = attributes
        self.variables: dict[str, Any] = {
            "device.driver": driver,
            "device.attributes": attributes,
            "device.capacity": capacity,
            "device.allowMultipleAllocations": multiple_allocations,
        }
        self._activation: Any = None

    def activation(self) -> Any:
        """Return the variables in the evaluator's form, which all expressions share."""
        if self._activation is None:
            self._activation = evaluator().Activation(self._with_device())
        return self._activation

    def activation_with(self, domains: set[str]) -> Any:
        """Return the variables with some more, empty, domains."""
        variables = dict(self.variables)
        for name in ("device.attributes", "device.capacity"):
            variables[name] = {**{domain: {} for domain in domains}, **variables[name]}
        return evaluator().Activation(variables)

    def _with_device(self) -> dict[str, Any]:
        fields = {name.removeprefix("device."): v for name, v in self.variables.items()}
        return {**self.variables, "device": fields}


class CELSelector:
    """One compiled expression; made by ``compile_selector``."""

    __slots__ = ("_program", "error", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.error = ""
        """Why it cannot be compiled; empty if it can."""
        self._program: Any = None
        try:
            checked = _checked(expression)
            if checked.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
                self.error = "must evaluate to bool or the unknown type, not " + str(
                    checked.return_type().name().lower()
                )
                return
            self._program = evaluator().deserialize(with_optionals(checked.serialize()))
        except RuntimeError as error:
            self.error = str(error)

    def matches(self, device: DeviceView) -> bool:
        """Tell whether a device is selected; raises ``CelError`` when that cannot be said."""
        domains: set[str] = set()
        activation = device.activation()
        while True:
            try:
                result = self._program.eval(activation)
            except RuntimeError as error:  # the budget of steps is spent
                raise CelError(str(error)) from None
            value = result.value()
            if result.type() == cel.Type.BOOL:
                return bool(value)
            if result.type() != cel.Type.ERROR:
                raise CelError(f"expression returned {result.type().name()}, expected bool")
            # A domain that no attribute has is an empty map, not an error. The evaluator cannot be
            # given a map with a default, so the domain that was missed is put there.
            missed = _MISSING_KEY.search(str(value))
            if missed is None or missed[1] in domains or missed[1] in device.attributes:
                raise CelError(_error_message(str(value), missed))
            domains.add(missed[1])
            activation = device.activation_with(domains)


def _error_message(error: str, missed: re.Match[str] | None) -> str:
    return error.partition(": ")[2] or error if missed is None else f"no such key: {missed[1]}"


@lru_cache(maxsize=4096)
def compile_selector(expression: str) -> CELSelector:
    """Compile an expression; ``error`` of the result says whether it could be.

    No gate has a say: the API accepted the expression, and what it could say then it can say now.
    """
    return CELSelector(expression)


def _checked(expression: str) -> Any:
    expression = _EXISTS_ONE.sub(".existsOne", expression)  # cel-cpp's name with two variables
    try:
        return checker().compile(expression)
    except RuntimeError as error:
        if _BARE_DEVICE in str(error):
            return lenient_checker().compile(expression)
        raise
