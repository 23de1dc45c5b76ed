"""The functions of templates: Go's own comparisons, and the arithmetic that scheduler_perf adds.

Each takes an iterator of its arguments, so that ``and`` and ``or`` can leave some unevaluated.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from proreus.base.errors import ConfigError

Number = int | float
Function = Callable[[Iterator[Any]], Any]


class _Unset:
    """The value of a parameter that a template was not given."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "a parameter without value"


UNSET: Final = _Unset()


def printed(value: Any) -> str:
    """Return a value as text; a number without fraction has no point."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None:
        return "<nil>"
    return str(value)


def field(value: Any, path: str) -> Any:
    """Return the value of a chain such as ``.a.b``; missing keys of a map are UNSET."""
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping):
            raise ConfigError(f"template: {path}: {value!r} has no fields")
        value = value.get(name, UNSET)
    return value


def items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys and items that ``range`` goes through; a number counts from 0."""
    if not value:
        return ()
    if isinstance(value, int):
        return enumerate(range(value))
    if isinstance(value, Mapping):
        return sorted(value.items())
    if isinstance(value, list):
        return enumerate(value)
    raise ConfigError(f"template: range cannot go through {value!r}")


def _number(value: Any) -> Number:
    """Return a number, also one that is a string; raises ``ValueError``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return float(value)
    raise ValueError(f"{value!r} is no number")


def _modulo(left: Number, right: Number) -> int:
    # As in Go, the result has the sign of the left operand.
    return int(left) - int(right) * int(int(left) / int(right))


def _as_json(arguments: Iterator[Any]) -> str:
    (value,) = arguments
    return json.dumps(None if value is UNSET else value, separators=(",", ":"), ensure_ascii=False)


def _not(arguments: Iterator[Any]) -> bool:
    (value,) = arguments
    return not value


def _indexed(value: Any, *keys: Any) -> Any:
    for key in keys:
        value = value.get(key, UNSET) if isinstance(value, Mapping) else value[key]
    return value


def _given(function: Callable[..., Any]) -> Function:
    """Return a function that takes no parameter without value."""

    def call(arguments: Iterator[Any]) -> Any:
        values = list(arguments)
        if UNSET in values:
            raise ValueError(f"{UNSET!r}")
        return function(*values)

    return call


def _numeric(kind: type[Number], function: Callable[..., Number]) -> Function:
    """Return a function of numbers whose result is an int, or a float."""
    return _given(lambda *arguments: kind(function(*map(_number, arguments))))


def _sum(*numbers: Number) -> Number:
    return sum(numbers)


def _product(*numbers: Number) -> Number:
    return math.prod(numbers)


def _first_where(wanted: bool) -> Function:
    """Return the function that gives its first argument that is true (false), or its last."""

    def call(arguments: Iterator[Any]) -> Any:
        value: Any = UNSET
        for value in arguments:
            if bool(value) is wanted:
                break
        return value

    return call


FUNCTIONS: Mapping[str, Function] = {
    "AddFloat": _numeric(float, _sum),
    "AddInt": _numeric(int, _sum),
    "DivideFloat": _numeric(float, operator.truediv),
    "DivideInt": _numeric(int, operator.truediv),
    "Int": _numeric(int, lambda value: value),
    "JSON": _as_json,
    "Mod": _numeric(int, _modulo),
    "MultiplyFloat": _numeric(float, _product),
    "MultiplyInt": _numeric(int, _product),
    "SubtractFloat": _numeric(float, operator.sub),
    "SubtractInt": _numeric(int, operator.sub),
    "and": _first_where(False),
    "or": _first_where(True),
    "not": _not,
    "eq": _given(lambda first, *others: first in others),
    "ne": _given(operator.ne),
    "lt": _given(operator.lt),
    "le": _given(operator.le),
    "gt": _given(operator.gt),
    "ge": _given(operator.ge),
    "len": _given(len),
    "index": _given(_indexed),
    "print": lambda arguments: "".join(map(printed, arguments)),
}
"""The functions that a template may call, by name."""
