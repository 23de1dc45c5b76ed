"""The functions of templates: Go's own comparisons, and the arithmetic that scheduler_perf adds.

Each takes an iterator of its arguments, so that ``and`` and ``or`` can leave some unevaluated.
"""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Number = int | float


class _Unset:
    """The value of a parameter that a template was not given."""

    def __repr__(self) -> str:
        return "a parameter without value"


UNSET: Final = _Unset()


def is_true(value: Any) -> bool:
    """Return whether Go takes a value as true: it is not zero, empty or missing."""
    return value is not UNSET and bool(value)


def printed(value: Any) -> str:
    """Return a value as text; a number without fraction has no point."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None:
        return "<nil>"
    return str(value)


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


def _divided(left: Number, right: Number) -> float:
    return float(left) / float(right)


def _modulo(left: Number, right: Number) -> int:
    # As in Go, the result has the sign of the left operand.
    return int(left) - int(right) * int(int(left) / int(right))


Function = Callable[[Iterator[Any]], Any]


def _on_numbers(function: Callable[..., Number]) -> Function:
    return lambda arguments: function(*map(_number, arguments))


def _on_two(function: Callable[[Any, Any], Any]) -> Function:
    def call(arguments: Iterator[Any]) -> Any:
        left, right = map(_given, arguments)
        return function(left, right)

    return call


def _on_one(function: Callable[[Any], Any]) -> Function:
    def call(arguments: Iterator[Any]) -> Any:
        (value,) = arguments
        return function(value)

    return call


def _given(value: Any) -> Any:
    if value is UNSET:
        raise ValueError(f"{value!r}")
    return value


def _first_where(wanted: bool) -> Function:
    """Return the function that gives its first argument that is true (false), or its last."""

    def call(arguments: Iterator[Any]) -> Any:
        value: Any = UNSET
        for value in arguments:
            if is_true(value) is wanted:
                break
        return value

    return call


def _equals_any(arguments: Iterator[Any]) -> bool:
    first, *others = map(_given, arguments)
    return any(first == other for other in others)


def _as_json(value: Any) -> str:
    return json.dumps(None if value is UNSET else value, separators=(",", ":"), ensure_ascii=False)


def _indexed(arguments: Iterator[Any]) -> Any:
    value, *keys = map(_given, arguments)
    for key in keys:
        value = value.get(key, UNSET) if isinstance(value, Mapping) else value[key]
    return value


FUNCTIONS: Mapping[str, Function] = {
    "AddFloat": _on_numbers(lambda *numbers: float(sum(numbers))),
    "AddInt": _on_numbers(lambda *numbers: int(sum(numbers))),
    "DivideFloat": _on_numbers(_divided),
    "DivideInt": _on_numbers(lambda left, right: int(_divided(left, right))),
    "Int": _on_one(lambda value: int(_number(value))),
    "JSON": _on_one(_as_json),
    "Mod": _on_numbers(_modulo),
    "MultiplyFloat": _on_numbers(lambda *numbers: float(math.prod(numbers))),
    "MultiplyInt": _on_numbers(lambda *numbers: int(math.prod(numbers))),
    "SubtractFloat": _on_numbers(lambda left, right: float(left - right)),
    "SubtractInt": _on_numbers(lambda left, right: int(left - right)),
    "and": _first_where(False),
    "or": _first_where(True),
    "not": _on_one(lambda value: not is_true(value)),
    "eq": _equals_any,
    "ne": _on_two(operator.ne),
    "lt": _on_two(operator.lt),
    "le": _on_two(operator.le),
    "gt": _on_two(operator.gt),
    "ge": _on_two(operator.ge),
    "len": _on_one(lambda value: len(_given(value))),
    "index": _indexed,
    "print": lambda arguments: functools.reduce(operator.add, map(printed, arguments), ""),
}
"""The functions that a template may call, by name."""
