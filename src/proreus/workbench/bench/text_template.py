"""The part of Go's text/template that scheduler_perf's templates use.

That is pipelines with functions, variables, ``if``, ``with`` and ``range``, ``{{-`` and ``-}}``. A
template is parsed once into functions of a scope, and rendered as often as there are objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from proreus.base.errors import ConfigError
from proreus.workbench.bench.template_functions import FUNCTIONS, UNSET, is_true, printed

_ACTION = re.compile(r"\{\{(-(?=\s))?(.*?)((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*("(?:[^"\\]|\\.)*"|`[^`]*`|[()|,]|:=|=|\$\w*(?:\.\w+)*|\.\w*(?:\.\w+)*|[^\s()|,]+)"""
)
_VARIABLE = re.compile(r"\$\w+$")
_CONSTANTS: Final[Mapping[str, Any]] = {"true": True, "false": False, "nil": None}
_BLOCKS = ("if", "with", "range")


class Scope:
    """The meaning of names at a place of a template: ``dot``, and the variables of all enclosing
    blocks.
    """

    __slots__ = ("_outer", "_variables", "dot")

    def __init__(self, dot: Any, outer: Scope | None = None) -> None:
        self.dot = dot
        self._outer = outer
        self._variables: dict[str, Any] = {} if outer else {"$": dot}

    def declare(self, name: str, value: Any) -> None:
        """Set a variable that exists until the end of the block."""
        self._variables[name] = value

    def assign(self, name: str, value: Any) -> None:
        """Change a variable where it was declared."""
        self._owner(name)._variables[name] = value

    def variable(self, name: str) -> Any:
        """Return a variable's value; raises ``ConfigError`` for one that was not declared."""
        return self._owner(name)._variables[name]

    def _owner(self, name: str) -> Scope:
        scope: Scope | None = self
        while scope is not None:
            if name in scope._variables:
                return scope
            scope = scope._outer
        raise ConfigError(f"template: the variable {name} is not declared")


Expression = Callable[[Scope], Any]
Node = Callable[[Scope, list[str]], None]


class TextTemplate:
    """One parsed template; raises ``ConfigError`` for a text that cannot be parsed."""

    def __init__(self, text: str) -> None:
        self.static = "{{" not in text
        """Whether it has no actions, so that it is the same for all values."""
        pieces = _Pieces(text)
        self._nodes = _block(pieces)
        if pieces.keyword:
            raise ConfigError(f"template: {{{{{pieces.keyword}}}}} ends no block")

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the text for these values, which its actions call ``.Name``."""
        out: list[str] = []
        _run(self._nodes, Scope(values), out)
        return "".join(out)


class _Pieces:
    """The texts and actions of a template, in turn."""

    def __init__(self, text: str) -> None:
        self._pieces = _split(text)
        self.keyword = ""
        """``end`` or ``else``, where that ended the block that was read last."""
        self.rest: list[str] = []
        """The tokens after that ``else``."""

    def __iter__(self) -> Iterator[str | list[str]]:
        return self._pieces


def _split(text: str) -> Iterator[str | list[str]]:
    """Yield texts as strings, and actions as lists of tokens."""
    at, trim = 0, False
    for action in _ACTION.finditer(text):
        piece = text[at : action.start()]
        piece = piece.lstrip() if trim else piece
        yield piece.rstrip() if action[1] else piece
        at, trim = action.end(), bool(action[3])
        body = action[2].strip()
        if not body.startswith("/*"):
            yield _tokens(body)
    yield text[at:].lstrip() if trim else text[at:]


def _tokens(body: str) -> list[str]:
    tokens = [match[1] for match in _TOKEN.finditer(body)]
    if not tokens:
        raise ConfigError("template: an action is empty")
    return tokens


def _block(pieces: _Pieces) -> Sequence[Node]:
    """Read up to the ``end`` or ``else`` of this block, or the end of the template."""
    pieces.keyword, nodes = "", []
    for piece in pieces:
        if isinstance(piece, str):
            nodes.append(_text(piece))
        elif piece[0] in ("end", "else"):
            pieces.keyword, pieces.rest = piece[0], piece[1:]
            return nodes
        elif piece[0] in _BLOCKS:
            nodes.append(_conditional(piece[0], piece[1:], pieces))
            pieces.keyword = ""
        else:
            nodes.append(_action(piece))
    return nodes


def _run(nodes: Sequence[Node], scope: Scope, out: list[str]) -> None:
    for node in nodes:
        node(scope, out)


def _text(piece: str) -> Node:
    return lambda scope, out: out.append(piece)


def _action(tokens: list[str]) -> Node:
    names, operator, expression = _declaration(tokens)

    def act(scope: Scope, out: list[str]) -> None:
        value = expression(scope)
        if not names:
            if value is UNSET:
                raise ConfigError(_unknown(" ".join(tokens), scope))
            out.append(printed(value))
        elif operator == "=":
            scope.assign(names[0], value)
        else:
            scope.declare(names[0], value)

    return act


def _conditional(keyword: str, tokens: list[str], pieces: _Pieces) -> Node:
    """Read an ``if``, ``with`` or ``range`` and its branches."""
    names, _, expression = _declaration(tokens)
    body = _block(pieces)
    otherwise: Sequence[Node] = ()
    if pieces.keyword == "else":
        if pieces.rest:
            otherwise = [_conditional(pieces.rest[0], pieces.rest[1:], pieces)]
        else:
            otherwise = _block(pieces)
    if pieces.keyword != "end":
        raise ConfigError(f"template: {{{{{keyword}}}}} has no {{{{end}}}}")

    def choose(scope: Scope, out: list[str]) -> None:
        value = expression(scope)
        inner = Scope(value if keyword == "with" else scope.dot, scope)
        if names:
            inner.declare(names[0], value)
        if is_true(value):
            _run(body, inner, out)
        else:
            _run(otherwise, Scope(scope.dot, scope), out)

    def repeat(scope: Scope, out: list[str]) -> None:
        items = list(_items(expression(scope)))
        for key, item in items:
            inner = Scope(item, scope)
            if names:
                inner.declare(names[-1], item)
            if len(names) > 1:
                inner.declare(names[0], key)
            _run(body, inner, out)
        if not items:
            _run(otherwise, Scope(scope.dot, scope), out)

    return repeat if keyword == "range" else choose


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a ``range`` with their keys; a number counts from 0."""
    if value is UNSET or value is None:
        return iter(())
    if isinstance(value, int):
        return zip(range(value), range(value), strict=True)
    if isinstance(value, Mapping):
        return iter(sorted(value.items()))
    if isinstance(value, list):
        return enumerate(value)
    raise ConfigError(f"template: range cannot go through {value!r}")


def _declaration(tokens: list[str]) -> tuple[list[str], str, Expression]:
    """Return the variables that an action sets, ``:=`` or ``=``, and the value."""
    for operator in (":=", "="):
        if operator in tokens:
            at = tokens.index(operator)
            names = [token for token in tokens[:at] if token != ","]
            if not 1 <= len(names) <= 2 or not all(map(_VARIABLE.match, names)):
                raise ConfigError(f"template: {' '.join(tokens[:at])} is no variable")
            return names, operator, _complete(tokens[at + 1 :])
    return [], "", _complete(tokens)


def _complete(tokens: list[str]) -> Expression:
    expression, rest = _pipeline(tokens)
    if rest:
        raise ConfigError(f"template: {{{{{' '.join(tokens)}}}}} ends too late, at {rest[0]}")
    return expression


def _pipeline(tokens: list[str]) -> tuple[Expression, list[str]]:
    """Read commands that are separated by ``|``: each gets the last one's result as argument."""
    expression, rest = _command(tokens, None)
    while rest[:1] == ["|"]:
        expression, rest = _command(rest[1:], expression)
    return expression, rest


def _command(tokens: list[str], piped: Expression | None) -> tuple[Expression, list[str]]:
    """Read a function with its arguments, or a single value."""
    name = tokens[0] if tokens else ""
    if name not in FUNCTIONS:
        value, rest = _operand(tokens)
        if piped is not None:
            raise ConfigError(f"template: {name} is no function, but gets a value by |")
        return value, rest
    arguments: list[Expression] = []
    rest = tokens[1:]
    while rest and rest[0] not in (")", "|"):
        argument, rest = _operand(rest)
        arguments.append(argument)
    if piped is not None:
        arguments.append(piped)
    function = FUNCTIONS[name]

    def call(scope: Scope) -> Any:
        # and, or do not evaluate all of their arguments
        values = (argument(scope) for argument in arguments)
        try:
            return function(values)
        except (ValueError, ZeroDivisionError, KeyError, IndexError, TypeError) as error:
            raise ConfigError(f"template: {name}: {error}") from None

    return call, rest


def _operand(tokens: list[str]) -> tuple[Expression, list[str]]:
    if not tokens:
        raise ConfigError("template: a value is missing")
    first, rest = tokens[0], tokens[1:]
    if first == "(":
        value, rest = _pipeline(rest)
        if rest[:1] != [")"]:
            raise ConfigError("template: a parenthesis is not closed")
        return value, rest[1:]
    if first.startswith("."):
        return _field_of(lambda scope: scope.dot, first), rest
    if first.startswith("$"):
        variable, dot, fields = first.partition(".")
        return _field_of(lambda scope: scope.variable(variable), dot + fields), rest
    if first in FUNCTIONS:
        return _command([first], None)[0], rest
    constant = _constant(first)
    return (lambda scope: constant), rest


def _field_of(base: Expression, path: str) -> Expression:
    """Return the expression of a chain such as ``.a.b``; missing keys of a map are UNSET."""
    names = [name for name in path.split(".") if name]

    def look_up(scope: Scope) -> Any:
        value = base(scope)
        for name in names:
            if not isinstance(value, Mapping):
                raise ConfigError(f"template: {path}: {value!r} has no fields")
            value = value.get(name, UNSET)
        return value

    return look_up


def _constant(token: str) -> Any:
    if token in _CONSTANTS:
        return _CONSTANTS[token]
    if token[0] == "`":
        return token[1:-1]
    if token[0] == '"':
        return json.loads(token)
    for number in (int, float):
        try:
            return number(token)
        except ValueError:
            continue
    raise ConfigError(
        f"template: {token} is unknown; there are numbers, strings, {', '.join(FUNCTIONS)}"
    )


def _unknown(action: str, scope: Scope) -> str:
    values = scope.variable("$")
    names = ", ".join(f".{name}" for name in values) if isinstance(values, Mapping) else "none"
    return f"template: {{{{{action}}}}} has no value; there are {names}"
