"""The part of Go's text/template that scheduler_perf's templates use.

That is pipelines with functions, variables, ``if``, ``with`` and ``range``, ``{{-`` and ``-}}``. A
template is parsed once into functions of a scope, and rendered as often as there are objects.
Functions are Go's own comparisons, and the arithmetic that scheduler_perf adds.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from proreus.base.errors import ConfigError

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
Number = int | float


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


def _field(value: Any, path: str) -> Any:
    """Return the value of a chain such as ``.a.b``; missing keys of a map are UNSET."""
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping):
            raise ConfigError(f"template: {path}: {value!r} has no fields")
        value = value.get(name, UNSET)
    return value


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
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
    names, sign, expression = _declaration(tokens)

    def output(scope: Scope) -> str:
        if (value := expression(scope)) is UNSET:
            known = ", ".join(f".{name}" for name in scope["$"])
            raise ConfigError(f"template: {{{{{action}}}}} has no value; there are {known}")
        return _printed(value)

    def assign(scope: Scope) -> str:
        if sign == "=":
            _variable(scope, names[0])
        owner = next(block for block in scope.maps if sign == ":=" or names[0] in block)
        owner[names[0]] = expression(scope)
        return ""

    return assign if sign else output


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

    def run(scope: Scope) -> str:
        blocks = _blocks(keyword, names, expression(scope))
        if not blocks:
            return _run(otherwise, scope.new_child())
        return "".join(_run(body, scope.new_child(block)) for block in blocks)

    return run


def _blocks(keyword: str, names: list[str], value: Any) -> list[dict[str, Any]]:
    """Return the variables of each rendering of a body, ``.`` among them."""
    if keyword == "range":
        # One variable gets the item, two get the key and the item.
        return [
            {".": item, **dict(zip(names[::-1], (item, key), strict=False))}
            for key, item in _items(value)
        ]
    dot = {".": value} if keyword == "with" else {}
    return [dot | dict.fromkeys(names, value)] if value else []


def _declaration(tokens: Tokens) -> tuple[list[str], str, Expression]:
    """Return the variables that an action sets, ``:=`` or ``=``, and the value."""
    for sign in (":=", "="):
        if sign in tokens:
            at = tokens.index(sign)
            *parts, _ = [tokens.popleft() for _ in range(at + 1)]
            names = [part for part in parts if part != ","]
            if not 1 <= len(names) <= 2 or not all(map(_VARIABLE.match, names)):
                raise ConfigError(f"template: {' '.join(parts)} is no variable")
            return names, sign, _complete(tokens)
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
    def call(scope: Scope) -> Any:
        if name in ("and", "or"):
            return _first_where(name == "or", arguments, scope)
        values = [argument(scope) for argument in arguments]
        try:
            if UNSET in values and name not in _TAKE_UNSET:
                raise ValueError(f"{UNSET!r}")
            return FUNCTIONS[name](*values)
        except (ValueError, ZeroDivisionError, KeyError, IndexError, TypeError) as error:
            raise ConfigError(f"template: {name}: {error}") from None

    return call


def _first_where(wanted: bool, arguments: Sequence[Expression], scope: Scope) -> Any:
    """Return the first argument that is true (false), or the last; evaluate no others."""
    value: Any = UNSET
    for argument in arguments:
        value = argument(scope)
        if bool(value) is wanted:
            break
    return value


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
        return lambda scope: _field(_variable(scope, name or "."), dot + path)
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


def _modulo(left: Number, right: Number) -> int:
    # As in Go, the result has the sign of the left operand.
    return int(left) - int(right) * int(int(left) / int(right))


def _as_json(value: Any) -> str:
    return json.dumps(None if value is UNSET else value, separators=(",", ":"), ensure_ascii=False)


def _indexed(value: Any, *keys: Any) -> Any:
    for key in keys:
        value = value.get(key, UNSET) if isinstance(value, Mapping) else value[key]
    return value


def _numeric(kind: type[Number], function: Callable[..., Number]) -> Callable[..., Number]:
    """Return a function of numbers whose result is an int, or a float."""
    return lambda *arguments: kind(function(*map(_number, arguments)))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "AddFloat": _numeric(float, lambda *numbers: sum(numbers)),
    "AddInt": _numeric(int, lambda *numbers: sum(numbers)),
    "DivideFloat": _numeric(float, operator.truediv),
    "DivideInt": _numeric(int, operator.truediv),
    "Int": _numeric(int, lambda value: value),
    "JSON": _as_json,
    "Mod": _numeric(int, _modulo),
    "MultiplyFloat": _numeric(float, lambda *numbers: math.prod(numbers)),
    "MultiplyInt": _numeric(int, lambda *numbers: math.prod(numbers)),
    "SubtractFloat": _numeric(float, operator.sub),
    "SubtractInt": _numeric(int, operator.sub),
    "and": _first_where,
    "or": _first_where,
    "not": operator.not_,
    "eq": lambda first, *others: first in others,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "len": len,
    "index": _indexed,
    "print": lambda *arguments: "".join(map(_printed, arguments)),
}
"""The functions that a template may call, by name; ``and`` and ``or`` evaluate what they need."""
_TAKE_UNSET = ("JSON", "not", "print")
