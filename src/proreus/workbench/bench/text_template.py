"""The part of Go's text/template that scheduler_perf's templates use.

That is pipelines with functions, variables, ``if``, ``with`` and ``range``, ``{{-`` and ``-}}``. A
template is parsed once into functions of a scope, and rendered as often as there are objects.
"""

from __future__ import annotations

import json
import re
from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from proreus.base.errors import ConfigError
from proreus.workbench.bench.template_functions import FUNCTIONS, UNSET, field, items, printed

_ACTION = re.compile(r"\{\{(-(?=\s))?(.*?)((?<=\s)-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*("(?:[^"\\]|\\.)*"|`[^`]*`|[()|,]|:=|=|\$\w*(?:\.\w+)*|\.\w*(?:\.\w+)*|[^\s()|,]+)"""
)
_VARIABLE = re.compile(r"\$\w+$")
_BLOCKS = ("if", "with", "range")

Tokens = deque[str]
Scope = ChainMap[str, Any]
"""The value of ``.`` and of each variable, in a block and in its enclosing blocks."""
Expression = Callable[[Scope], Any]
Node = Callable[[Scope], str]


class TextTemplate:
    """One parsed template; raises ``ConfigError`` for a text that cannot be parsed."""

    def __init__(self, text: str) -> None:
        self.static = "{{" not in text
        """Whether it has no actions, so that it is the same for all values."""
        self._nodes, rest = _block(_split(text))
        if rest:
            raise ConfigError(f"template: {{{{{rest[0]}}}}} ends no block")

    def render(self, values: Mapping[str, Any]) -> str:
        """Return the text for these values, which its actions call ``.Name``."""
        return _run(self._nodes, ChainMap({"$": values, ".": values}))


def _split(text: str) -> Iterator[str | Tokens]:
    """Yield texts as strings, and actions as tokens."""
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


def _tokens(body: str) -> Tokens:
    tokens = deque(match[1] for match in _TOKEN.finditer(body))
    if not tokens:
        raise ConfigError("template: an action is empty")
    return tokens


def _run(nodes: Sequence[Node], scope: Scope) -> str:
    return "".join([node(scope) for node in nodes])


def _block(pieces: Iterator[str | Tokens]) -> tuple[Sequence[Node], Tokens]:
    """Read a block; return also the ``end`` or ``else`` that ended it, if it was not the text."""
    nodes = []
    for piece in pieces:
        if isinstance(piece, str):
            nodes.append(_text(piece))
        elif piece[0] in ("end", "else"):
            return nodes, piece
        else:
            nodes.append(_control(piece, pieces) if piece[0] in _BLOCKS else _action(piece))
    return nodes, deque()


def _text(piece: str) -> Node:
    return lambda scope: piece


def _action(tokens: Tokens) -> Node:
    """Read an output, a declaration or an assignment."""
    action = " ".join(tokens)
    names, operator, expression = _declaration(tokens)

    def output(scope: Scope) -> str:
        if (value := expression(scope)) is UNSET:
            known = ", ".join(f".{name}" for name in scope["$"])
            raise ConfigError(f"template: {{{{{action}}}}} has no value; there are {known}")
        return printed(value)

    def declare(scope: Scope) -> str:
        scope[names[0]] = expression(scope)
        return ""

    def assign(scope: Scope) -> str:
        _variable(scope, names[0])
        owner = next(block for block in scope.maps if names[0] in block)
        owner[names[0]] = expression(scope)
        return ""

    return {"": output, ":=": declare, "=": assign}[operator]


def _control(tokens: Tokens, pieces: Iterator[str | Tokens]) -> Node:
    """Read an ``if``, ``with`` or ``range`` and its branches."""
    keyword = tokens.popleft()
    names, _, expression = _declaration(tokens)
    body, rest = _block(pieces)
    otherwise: Sequence[Node] = ()
    if len(rest) > 1:
        rest.popleft()
        otherwise, rest = [_control(rest, pieces)], deque(["end"])
    elif rest and rest[0] == "else":
        otherwise, rest = _block(pieces)
    if not rest or rest[0] != "end":
        raise ConfigError(f"template: {{{{{keyword}}}}} has no {{{{end}}}}")

    def choose(scope: Scope) -> str:
        value = expression(scope)
        if not value:
            return _run(otherwise, scope.new_child())
        dot = {".": value} if keyword == "with" else {}
        return _run(body, scope.new_child(dot | dict.fromkeys(names, value)))

    def repeat(scope: Scope) -> str:
        # One variable gets the item, two get the key and the item.
        blocks = [
            {".": item, **dict(zip(names[::-1], (item, key), strict=False))}
            for key, item in items(expression(scope))
        ]
        if not blocks:
            return _run(otherwise, scope.new_child())
        return "".join(_run(body, scope.new_child(block)) for block in blocks)

    return repeat if keyword == "range" else choose


def _declaration(tokens: Tokens) -> tuple[list[str], str, Expression]:
    """Return the variables that an action sets, ``:=`` or ``=``, and the value."""
    for operator in (":=", "="):
        if operator in tokens:
            at = tokens.index(operator)
            *parts, _ = [tokens.popleft() for _ in range(at + 1)]
            names = [part for part in parts if part != ","]
            if not 1 <= len(names) <= 2 or not all(map(_VARIABLE.match, names)):
                raise ConfigError(f"template: {' '.join(parts)} is no variable")
            return names, operator, _complete(tokens)
    return [], "", _complete(tokens)


def _complete(tokens: Tokens) -> Expression:
    text = " ".join(tokens)
    expression = _pipeline(tokens)
    if tokens:
        raise ConfigError(f"template: {{{{{text}}}}} ends too late, at {tokens[0]}")
    return expression


def _pipeline(tokens: Tokens) -> Expression:
    """Read commands that are separated by ``|``: each gets the last one's result as argument."""
    expression = _command(tokens)
    while tokens and tokens[0] == "|":
        tokens.popleft()
        expression = _command(tokens, expression)
    return expression


def _command(tokens: Tokens, *piped: Expression) -> Expression:
    """Read a function with its arguments, or a single value."""
    name = tokens[0] if tokens else ""
    if name not in FUNCTIONS:
        if piped:
            raise ConfigError(f"template: {name} is no function, but gets a value by |")
        return _operand(tokens)
    tokens.popleft()
    arguments = []
    while tokens and tokens[0] not in (")", "|"):
        arguments.append(_operand(tokens))
    return _call(name, [*arguments, *piped])


def _call(name: str, arguments: Sequence[Expression]) -> Expression:
    function = FUNCTIONS[name]

    def call(scope: Scope) -> Any:
        try:
            # and, or do not evaluate all of their arguments
            return function(argument(scope) for argument in arguments)
        except (ValueError, ZeroDivisionError, KeyError, IndexError, TypeError) as error:
            raise ConfigError(f"template: {name}: {error}") from None

    return call


def _operand(tokens: Tokens) -> Expression:
    if not tokens:
        raise ConfigError("template: a value is missing")
    first = tokens.popleft()
    if first == "(":
        value = _pipeline(tokens)
        if not tokens or tokens.popleft() != ")":
            raise ConfigError("template: a parenthesis is not closed")
        return value
    if first in FUNCTIONS:
        return _call(first, [])
    if first[0] in ".$":
        name, dot, path = first.partition(".")
        return lambda scope: field(_variable(scope, name or "."), dot + path)
    constant = _constant(first)
    return lambda scope: constant


def _variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise ConfigError(f"template: the variable {name} is not declared")
    return scope[name]


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
