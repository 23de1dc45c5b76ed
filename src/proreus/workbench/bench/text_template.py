"""The part of Go's text/template that scheduler_perf's templates use, translated for Jinja.

That is pipelines with functions, variables that are declared once, ``if``, ``range`` and ``with``,
``{{-`` and ``-}}``. Functions are Go's comparisons, and the arithmetic that scheduler_perf adds.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import jinja2

from proreus.base.errors import ConfigError

_ACTION = re.compile(r"\{\{(-(?=\s))?(.*?)((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|`[^`]*`|[()|]|:=|[^\s()|]+)""")

Tokens = deque[str]


class _Unset:
    """The value of a parameter that a template was not given."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "a parameter without value"


UNSET: Final = _Unset()


def _printed(value: Any) -> str:
    """Return a value as text; a number without fraction has no point."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None:
        return "<nil>"
    return str(value)


def _output(value: Any, action: str, values: Mapping[str, Any]) -> str:
    if value is UNSET:
        known = ", ".join(f".{name}" for name in values)
        raise ConfigError(f"template: {{{{{action}}}}} has no value; there are {known}")
    return _printed(value)


def _field(value: Any, path: str) -> Any:
    """Return the value of a chain such as ``.a.b``; missing keys of a map are UNSET."""
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping):
            raise ConfigError(f"template: .{path}: {value!r} has no fields")
        value = value.get(name, UNSET)
    return value


def _items(value: Any) -> Iterable[Any]:
    """Return the items that ``range`` goes through; a number counts from 0."""
    if not value:
        return ()
    if isinstance(value, int):
        return range(value)
    if isinstance(value, list):
        return value
    raise ConfigError(f"template: range cannot go through {value!r}")


def _given(value: Any) -> tuple[Any, ...]:
    """Return what ``with`` goes through: the value, unless it is empty."""
    return (value,) if value else ()


def _call(name: str, *arguments: Any) -> Any:
    try:
        if UNSET in arguments and name not in _TAKE_UNSET:
            raise ValueError(f"{UNSET!r}")
        return FUNCTIONS[name](*arguments)
    except (ValueError, ZeroDivisionError, KeyError, IndexError, TypeError) as error:
        raise ConfigError(f"template: {name}: {error}") from None


# Jinja's statements stand between control characters, so that all other text is itself.
_JINJA = jinja2.Environment(
    *("\x01", "\x02", "\x03", "\x04", "\x05", "\x06"),
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)
_JINJA.globals.update(output=_output, field=_field, items=_items, given=_given, call=_call)


class TextTemplate:
    """One parsed template; raises ``ConfigError`` for a text that cannot be parsed."""

    def __init__(self, text: str) -> None:
        self.static = "{{" not in text
        """Whether it has no actions, so that it is the same for all values."""
        self._open: list[str] = []
        translated = _ACTION.sub(self._translate, text)
        if self._open:
            raise ConfigError(f"template: {{{{{self._open[-1]}}}}} has no {{{{end}}}}")
        try:
            self._template = _JINJA.from_string(translated)
        except jinja2.TemplateError as error:
            raise ConfigError(f"template: {error.message}") from None

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the text for these values, which its actions call ``.Name``."""
        try:
            return self._template.render(dot=values, values=values)
        except jinja2.TemplateError as error:
            raise ConfigError(f"template: {error.message}") from None

    def _translate(self, action: re.Match[str]) -> str:
        """Return an action in Jinja's words."""
        before, body, after = action[1] or "", action[2].strip(), action[3] or ""
        if body.startswith("/*"):
            return f"\x05{before} {after}\x06"
        tokens = deque(_TOKEN.findall(body))
        if not tokens:
            raise ConfigError("template: an action is empty")
        if (statement := self._statement(tokens)) is None:
            statement = f"output({_complete(tokens)}, {body!r}, values)"
            return f"\x03{before} {statement} {after}\x04"
        return f"\x01{before} {statement} {after}\x02"

    def _statement(self, tokens: Tokens) -> str | None:
        """Return a declaration or a part of a block; None for an output, whose tokens are left."""
        match tokens.popleft():
            case "end":
                if not self._open:
                    raise ConfigError("template: {{end}} ends no block")
                return {"if": "endif", "range": "endfor", "with": "endfor"}[self._open.pop()]
            case "else":
                return f"elif {_complete(tokens, skipped='if')}" if tokens else "else"
            case "if":
                self._open.append("if")
                return f"if {_complete(tokens)}"
            case "with":
                self._open.append("with")
                return f"for dot in given({_complete(tokens)})"
            case "range":
                self._open.append("range")
                if len(tokens) > 1 and tokens[1] == ":=":
                    name = _variable(tokens.popleft())
                    rest = f"\x02\x01 set {name} = dot"
                    return f"for dot in items({_complete(tokens, skipped=':=')}) {rest}"
                return f"for dot in items({_complete(tokens)})"
            case name if tokens and tokens[0] == ":=":
                return f"set {_variable(name)} = {_complete(tokens, skipped=':=')}"
            case first:
                tokens.appendleft(first)
                return None


def _variable(name: str) -> str:
    """Return the variable that ``.`` or ``$x`` begins with; ``$`` alone has all values."""
    if re.fullmatch(r"(\$\w*)?", name) is None:
        raise ConfigError(f"template: {name} is no variable")
    return {"": "dot", "$": "values"}.get(name, f"variable_{name[1:]}")


def _complete(tokens: Tokens, skipped: str = "") -> str:
    """Return the expression that all tokens make; ``skipped`` is a token before it."""
    if skipped and tokens.popleft() != skipped:
        raise ConfigError(f"template: {skipped} is missing")
    text = " ".join(tokens)
    expression = _pipeline(tokens)
    if tokens:
        raise ConfigError(f"template: {{{{{text}}}}} ends too late, at {tokens[0]}")
    return expression


def _pipeline(tokens: Tokens) -> str:
    """Read commands that are separated by ``|``: each gets the last one's result as argument."""
    expression = _command(tokens)
    while tokens and tokens[0] == "|":
        tokens.popleft()
        expression = _command(tokens, expression)
    return expression


def _command(tokens: Tokens, *piped: str) -> str:
    """Read a function with its arguments, or a single value."""
    name = tokens[0] if tokens else ""
    if name not in ("and", "or", *FUNCTIONS):
        if piped:
            raise ConfigError(f"template: {name} is no function, but gets a value by |")
        return _operand(tokens)
    tokens.popleft()
    arguments = []
    while tokens and tokens[0] not in (")", "|"):
        arguments.append(_operand(tokens))
    arguments += piped
    if name in ("and", "or"):
        return f"({f' {name} '.join(arguments)})"
    return f"call({', '.join([repr(name), *arguments])})"


def _operand(tokens: Tokens) -> str:
    if not tokens:
        raise ConfigError("template: a value is missing")
    first = tokens.popleft()
    if first == "(":
        value = _pipeline(tokens)
        if not tokens or tokens.popleft() != ")":
            raise ConfigError("template: a parenthesis is not closed")
        return value
    if first[0] in ".$":
        name, _, path = first.partition(".")
        return f"field({_variable(name)}, {path!r})"
    return repr(_constant(first))


def _constant(token: str) -> Any:
    if token == "nil":
        return None
    if token.startswith("`"):
        return token[1:-1]
    try:
        return json.loads(token)
    except ValueError:
        raise ConfigError(
            f"template: {token} is unknown; there are numbers, strings, {', '.join(FUNCTIONS)}"
        ) from None


def _as_json(value: Any) -> str:
    return json.dumps(None if value is UNSET else value, separators=(",", ":"), ensure_ascii=False)


def _numeric(kind: type[int | float], function: Callable[..., float]) -> Callable[..., float]:
    """Return a function of numbers, also ones in strings, whose result is an int, or a float."""
    return lambda *arguments: kind(function(*map(float, arguments)))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "AddFloat": _numeric(float, lambda *numbers: sum(numbers)),
    "AddInt": _numeric(int, lambda *numbers: sum(numbers)),
    "DivideFloat": _numeric(float, operator.truediv),
    "DivideInt": _numeric(int, operator.truediv),
    "Int": _numeric(int, float),
    "JSON": _as_json,
    "Mod": _numeric(int, math.fmod),
    "MultiplyFloat": _numeric(float, lambda *numbers: math.prod(numbers)),
    "MultiplyInt": _numeric(int, lambda *numbers: math.prod(numbers)),
    "SubtractFloat": _numeric(float, operator.sub),
    "SubtractInt": _numeric(int, operator.sub),
    "not": operator.not_,
    "eq": lambda first, *others: first in others,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
"""The functions that a template may call, by name, besides ``and`` and ``or``."""
_TAKE_UNSET = ("JSON", "not")
