"""The functions that Kubernetes adds to CEL, declared for the checker and for the evaluator.

Each stands once here, with its argument types in Kubernetes' terms; ``declarations`` spells them
for one of the two environments (see ``cel``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from cel_expr_python import cel

from proreus.plugins.dynamic_resources import cel_values as values

Q, V = "quantity", "semver"
BOOL, INT, DOUBLE, STRING, DYN, LIST = "bool", "int", "double", "string", "dyn", "list"

Types = Mapping[str, cel.Type]

_MOST_VALUES = 48
"""Values of an attribute that is a list, at most."""


class Function(NamedTuple):
    """One overload; ``member`` functions are called on their first argument."""

    name: str
    member: bool
    parameters: tuple[str, ...]
    result: str
    impl: Callable[..., Any]


_OF_QUANTITIES = (
    Function("quantity", False, (STRING,), Q, values.quantity),
    Function("isQuantity", False, (STRING,), BOOL, values.is_quantity),
    Function("sign", True, (Q,), INT, values.sign),
    Function("isInteger", True, (Q,), BOOL, values.is_integer),
    Function("asInteger", True, (Q,), INT, values.as_integer),
    Function("asApproximateFloat", True, (Q,), DOUBLE, values.as_approximate_float),
    Function("add", True, (Q, Q), Q, values.add),
    Function("add", True, (Q, INT), Q, values.add_int),
    Function("sub", True, (Q, Q), Q, values.sub),
    Function("sub", True, (Q, INT), Q, values.sub_int),
)
_OF_VERSIONS = (
    Function("semver", False, (STRING,), V, values.semver),
    Function("semver", False, (STRING, BOOL), V, values.semver_normalized),
    Function("isSemver", False, (STRING,), BOOL, values.is_semver),
    Function("isSemver", False, (STRING, BOOL), BOOL, values.is_semver_normalized),
    Function("major", True, (V,), INT, values.major),
    Function("minor", True, (V,), INT, values.minor),
    Function("patch", True, (V,), INT, values.patch),
)
_OF_BOTH = tuple(
    Function(name, True, (kind, kind), result, impl)
    for kind in (Q, V)
    for name, result, impl in (
        ("compareTo", INT, values.compare_to),
        ("isLessThan", BOOL, values.is_less_than),
        ("isGreaterThan", BOOL, values.is_greater_than),
    )
)


# ---- regular expressions, lists, sets ----------------------------------------------------------


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    found = _pattern(pattern).search(text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _items(items: Sequence[Any]) -> list[Any]:
    """Return a list's items as they compare: bytes in lists come as bytearrays."""
    return [bytes(item) if isinstance(item, bytearray) else item for item in items]


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(items[i] <= items[i + 1] for i in range(len(items) - 1))


def _min(items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def _max(items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


def _contains(items: Sequence[Any], others: Sequence[Any]) -> bool:
    known = _items(items)
    return all(other in known for other in _items(others))


def _equivalent(items: Sequence[Any], others: Sequence[Any]) -> bool:
    return _contains(items, others) and _contains(others, items)


def _intersects(items: Sequence[Any], others: Sequence[Any]) -> bool:
    known = _items(items)
    return any(other in known for other in _items(others))


def _is_equal(one: Any, other: Any) -> bool:
    """Compare as CEL does, to which true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _includes(value: Any, wanted: Any) -> bool:
    """Tell whether a value is the one that is wanted, or a list that has it."""
    if not isinstance(value, list | tuple):
        return _is_equal(value, wanted)
    if len(value) > _MOST_VALUES:
        raise ValueError(
            f"'includes' function cannot be applied to lists longer than {_MOST_VALUES} values"
        )
    return any(_is_equal(item, wanted) for item in _items(value))


_OF_TEXTS_AND_LISTS = (
    Function("find", True, (STRING, STRING), STRING, _find),
    Function("findAll", True, (STRING, STRING), LIST, _find_all),
    Function("findAll", True, (STRING, STRING, INT), LIST, _find_all),
    Function("isSorted", True, (LIST,), BOOL, _is_sorted),
    Function("sum", True, (LIST,), DYN, sum),
    Function("min", True, (LIST,), DYN, _min),
    Function("max", True, (LIST,), DYN, _max),
    Function("sets.contains", False, (LIST, LIST), BOOL, _contains),
    Function("sets.equivalent", False, (LIST, LIST), BOOL, _equivalent),
    Function("sets.intersects", False, (LIST, LIST), BOOL, _intersects),
)

_OF_ATTRIBUTES = tuple(
    # the evaluator goes by what values are, so that anything at all must be spelt out
    Function("includes", True, (kind, wanted), BOOL, _includes)
    for kind in (BOOL, INT, DOUBLE, STRING, Q, V, LIST)
    for wanted in (BOOL, INT, DOUBLE, STRING, Q, V)
)

FUNCTIONS = (*_OF_ATTRIBUTES, *_OF_QUANTITIES, *_OF_VERSIONS, *_OF_BOTH, *_OF_TEXTS_AND_LISTS)


def declarations(types: Types) -> list[cel.FunctionDecl]:
    """Declare all functions; overloads whose types coincide there are declared once."""
    overloads: dict[str, dict[tuple[str, ...], cel.Overload]] = {}
    for function in FUNCTIONS:
        parameters = [types[kind] for kind in function.parameters]
        key = tuple(kind.name() for kind in parameters)
        same_name = overloads.setdefault(function.name, {})
        same_name.setdefault(
            key,
            cel.Overload(
                "_".join((function.name, *function.parameters)),
                types[function.result],
                parameters,
                is_member=function.member,
                impl=function.impl,
            ),
        )
    return [cel.FunctionDecl(name, list(group.values())) for name, group in overloads.items()]
