"""Templates of API objects: YAML with the part of Go's text/template that scheduler_perf uses.

That is ``{{.Index}}``, ``{{.Count}}`` and its arithmetic (``{{DivideInt .Index 10}}``, nested by
parentheses).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from proreus.config.reading import read
from proreus.errors import ConfigError

JsonObject = dict[str, Any]
Number = int | float

_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_TOKEN = re.compile(r"\s*(\(|\)|\"[^\"]*\"|[^\s()]+)")


def _divided(left: Number, right: Number) -> float:
    return float(left) / float(right)


def _product(*numbers: Number) -> float:
    result = 1.0
    for number in numbers:
        result *= number
    return result


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "AddFloat": lambda *numbers: float(sum(numbers)),
    "AddInt": lambda *numbers: int(sum(numbers)),
    "DivideFloat": _divided,
    "DivideInt": lambda left, right: int(_divided(left, right)),
    "Mod": lambda left, right: int(left) - int(right) * int(int(left) / int(right)),
    "MultiplyFloat": _product,
    "MultiplyInt": lambda *numbers: int(_product(*numbers)),
    "SubtractFloat": lambda left, right: float(left - right),
    "SubtractInt": lambda left, right: int(left - right),
}
"""The functions of scheduler_perf's templates. As in Go, Mod has the sign of the left operand."""

_FREE_FORM = frozenset(
    (
        *("labels", "annotations", "matchLabels", "nodeSelector", "selector", "data", "stringData"),
        *("requests", "limits", "capacity", "allocatable", "overhead", "attributes", "counters"),
        "consumesCounters",
    )
)
"""Fields whose keys are data and not field names of the API."""


class Template:
    """One template file; raises ``ConfigError`` if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = path.read_text()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        self.static = "{{" not in self._text
        """Whether it has no actions, so that all its objects are the same."""

    def object(self, index: int = 0, count: int = 1) -> JsonObject:
        """Return a new object, number ``index`` of ``count``; raises ``ConfigError``."""
        text = self._text
        if not self.static:
            names = {".Index": index, ".Count": count}
            try:
                text = _ACTION.sub(lambda action: _evaluate(action[1], names), text)
            except (ConfigError, ZeroDivisionError, TypeError) as error:
                raise ConfigError(f"{self.path}: {error}") from None
        try:
            document = read(text)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from None
        if document.strict_errors:
            raise ConfigError(*(f"{self.path}: {problem}" for problem in document.strict_errors))
        made = document.data
        if not isinstance(made, dict) or not made.get("kind") or not made.get("apiVersion"):
            raise ConfigError(f"{self.path}: must be an object with apiVersion and kind")
        return dict(_with_json_field_names(made))


@lru_cache(maxsize=256)
def template_of(path: Path) -> Template:
    """Return the template of a file, read only once."""
    return Template(path)


def _evaluate(expression: str, names: dict[str, int]) -> str:
    tokens = [match[1] for match in _TOKEN.finditer(expression)]
    value, rest = _call(tokens, names)
    if rest:
        raise ConfigError(f"template: {{{{{expression}}}}} ends too late, at {rest[0]}")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _call(tokens: list[str], names: dict[str, int]) -> tuple[Number, list[str]]:
    """Evaluate a function call or a single value; return it and the remaining tokens."""
    if tokens and tokens[0] in FUNCTIONS:
        function, rest = FUNCTIONS[tokens[0]], tokens[1:]
        arguments = []
        while rest and rest[0] != ")":
            argument, rest = _value(rest, names)
            arguments.append(argument)
        return function(*arguments), rest
    return _value(tokens, names)


def _value(tokens: list[str], names: dict[str, int]) -> tuple[Number, list[str]]:
    if not tokens:
        raise ConfigError("template: an action is empty")
    first, rest = tokens[0], tokens[1:]
    if first == "(":
        value, rest = _call(rest, names)
        if rest[:1] != [")"]:
            raise ConfigError("template: a parenthesis is not closed")
        return value, rest[1:]
    if first in names:
        return names[first], rest
    for number in (int, float):
        try:
            return number(first.strip('"')), rest
        except ValueError:
            continue
    allowed = ", ".join([*names, *FUNCTIONS])
    raise ConfigError(f"template: {first} is unknown; there are numbers, {allowed}")


def _with_json_field_names(value: Any) -> Any:
    """Return a value with field names in lower camelCase.

    Go decodes them regardless of case, but the apiserver would drop those in upper case.
    """
    if isinstance(value, dict):
        return dict(_fields(value))
    if isinstance(value, list):
        return [_with_json_field_names(item) for item in value]
    return value


def _fields(fields: JsonObject) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name in _FREE_FORM:
            yield name, value
        elif name[:1].isupper():
            yield name[0].lower() + name[1:], _with_json_field_names(value)
        else:
            yield name, _with_json_field_names(value)
