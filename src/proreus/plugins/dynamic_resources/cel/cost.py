"""The greatest cost of evaluating an expression, known before it is evaluated.

cel-cpp counts no cost and limits no memory. Kubernetes' limit, a cost of 1,000,000, is not enough
by itself: the cost of a call is known when its result is already there, and a text of megabytes in
which each character is replaced by hundreds becomes gigabytes in one call.

So an expression is walked once, with upper bounds in the place of values. An expression that may
take too much is not evaluated, nor one that calls a function whose results may have any size. It
fails as Kubernetes lets fail what has taken too much.

Example: ``"aa".replace("a", "bcd")``. The operands have 2, 1 and 3 bytes, and the result at most
2 + (2 + 1) * 3 = 11: a replacement for each character and one more, for an empty first argument.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import reduce
from math import prod
from typing import Any, NamedTuple

from proreus.objects.protobuf import decode_int64, fields

LIMIT_EXCEEDED = "operation cancelled: actual cost limit exceeded"
"""cel-go's text."""

MAX_COST = 1_000_000
"""Kubernetes' limit: about 0.1 s."""
MAX_BYTES = 2**20
"""Of each value."""
MAX_KEPT_BYTES = 2**14
"""Bytes that an evaluation may leave behind: cel-expr-python 0.1.3 never frees the arguments and
the result of a function in Python, and whoever may create claims writes expressions."""
_KEPT_BYTES_A_CALL = 200

_MAX_VISITS = 20_000
_SCALAR = 8


class Bound(NamedTuple):
    """The most bytes that a value may take, and the most items that a list or map has.

    ``inside``: the bound of a value that a look-up or a loop finds in it; None means its own.
    """

    size: int
    items: int = 0
    inside: Bound | None = None

    def found(self) -> Bound:
        """Return the bound of a value that a look-up or a loop finds."""
        return self.inside or self

    def or_(self, other: Bound) -> Bound:
        """Return the bound of a value that has one of two bounds."""
        inside = self.found().or_(other.found()) if self.inside or other.inside else None
        return Bound(max(self.size, other.size), max(self.items, other.items), inside)

    def flat(self) -> Bound:
        """Return a bound of the value and of all that is in it."""
        inner = self.inside.flat().items if self.inside else 0
        return Bound(self.size, max(self.items, inner))

    def rounded(self) -> Bound:
        """Return powers of two, so that an expression is walked once for devices of like sizes."""
        size, items = (n and 1 << (n - 1).bit_length() for n in (self.size, self.items))
        return Bound(size, items, self.inside and self.inside.rounded())


class Unbounded(Exception):
    """Nothing is known, or too much would have to be computed."""


def bound_of(value: Any) -> Bound:
    """Return the bound of a value in Python."""
    if isinstance(value, str | bytes):
        return Bound(_SCALAR + len(value.encode() if isinstance(value, str) else value))
    if not isinstance(value, list | dict):
        return Bound(_SCALAR)
    parts = [bound_of(part) for part in value]
    if isinstance(value, dict):
        parts += map(bound_of, value.values())
    size = _SCALAR + sum(part.size for part in parts)
    return Bound(size, len(value), reduce(Bound.or_, parts, Bound(_SCALAR)))


_OF_ANY, _ROOT = 2, 4

_LOOK_UPS = frozenset({"_[_]", "_[?_]", "_?._"})
_ONE_OPERAND = frozenset(
    """
    _?_:_ optional.of optional.ofNonZeroValue optional.none or orValue value dyn
    """.split()  # noqa: SIM905
)
"""The result is one of the operands."""
_TO_SCALAR = frozenset(
    """
    _==_ _!=_ _<_ _<=_ _>_ _>=_ !_ _&&_ _||_ @in _-_ _*_ _/_ _%_ -_ @not_strictly_false
    __not_strictly_false__ isQuantity isSemver compareTo isGreaterThan isLessThan sign isInteger
    asInteger asApproximateFloat major minor patch startsWith endsWith contains matches size
    includes int uint double bool indexOf lastIndexOf isSorted isIP isCIDR isURL ip.isCanonical
    family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast
    containsIP containsCIDR prefixLength hasValue sets.contains sets.equivalent sets.intersects
    type timestamp duration getFullYear getMonth getHours getMinutes getSeconds
    """.split()  # noqa: SIM905
)
_NO_LARGER = frozenset(
    """
    _+_ find lowerAscii upperAscii trim substring charAt reverse slice flatten first last sort sum
    min max optional.unwrap unwrapOpt unwrap string bytes quantity semver add sub ip cidr masked
    distinct getScheme getHost getHostname getPort getEscapedPath cel.@mapInsert
    @sortByAssociatedKeys
    """.split()  # noqa: SIM905
)
"""Results no larger than all operands together, and a few bytes."""
_PRODUCTS = frozenset(
    """
    contains indexOf lastIndexOf distinct sort sets.contains sets.equivalent
    sets.intersects @in includes @sortByAssociatedKeys
    """.split()  # noqa: SIM905
)
"""Time by the product of the operands rather than their sum, in the worst case."""
_MATCHES = frozenset({"matches", "find", "findAll"})
_MAX_INSTRUCTIONS = 333_000
"""RE2 compiles no larger pattern."""


def is_affordable(checked: bytes, device: Bound, in_python: Container[str]) -> bool:
    """Return whether an evaluation is within all limits.

    ``checked``: a ``cel.expr.CheckedExpr`` in an ``Any``, as cel-cpp serialises it. ``in_python``:
    the names of the functions in Python.
    """
    walk = _Walk(device, in_python)
    try:
        for place, _, content in fields(checked):
            for number, _, expr in fields(content) if place == _OF_ANY else ():
                if number == _ROOT:
                    walk.bound(expr, {})
    except (Unbounded, RecursionError):
        return False
    return walk.cost <= MAX_COST and walk.kept_bytes <= MAX_KEPT_BYTES


class _Walk:
    """Computes bounds of all parts of one expression.

    ``cost``: about that of Kubernetes. ``kept_bytes``: of arguments and results of functions in
    Python.
    """

    def __init__(self, device: Bound, in_python: Container[str] = ()) -> None:
        self.cost = self.kept_bytes = 0
        self._in_python = in_python
        self._device = device
        self._visits = 0
        self._repeated = 1

    def bound(self, expr: bytes, variables: Mapping[str, Bound]) -> Bound:
        """Return the bound of an ``Expr``; raises ``Unbounded``."""
        self._visits += 1
        if self._visits > _MAX_VISITS or self.cost > MAX_COST:
            raise Unbounded
        bound = Bound(_SCALAR)
        for number, _, content in fields(expr):
            match number:
                case 3:  # a constant
                    bound = Bound(_SCALAR + len(content))
                case 4:
                    bound = self._ident(content, variables)
                case 5:
                    bound = self._select(content, variables)
                case 6:
                    bound = self._call(content, variables)
                case 7 | 8:
                    bound = self._collection(content, variables, is_map=number == 8)
                case 9:
                    bound = self._loop(content, variables)
        if bound.size > MAX_BYTES:
            raise Unbounded
        return bound

    def _charge(self, cost: int) -> None:
        self.cost += cost * self._repeated

    def _ident(self, ident: bytes, variables: Mapping[str, Bound]) -> Bound:
        self._charge(1)
        name = b"".join(content for number, _, content in fields(ident) if number == 1).decode()
        first, _, field = name.removeprefix(".").partition(".")
        if first == "device":
            return self._device.found() if field else self._device
        return variables.get(name, Bound(_SCALAR))

    def _select(self, select: bytes, variables: Mapping[str, Bound]) -> Bound:
        self._charge(1)
        bound = Bound(_SCALAR)
        for number, _, content in fields(select):
            if number == 1:
                bound = self.bound(content, variables).found()
            elif number == 3 and decode_int64(content):
                return Bound(_SCALAR)  # has()
        return bound

    def _collection(self, collection: bytes, variables: Mapping[str, Bound], is_map: bool) -> Bound:
        size, items, inside = _SCALAR, 0, Bound(_SCALAR)
        for number, _, content in fields(collection):
            parts = [content] if not is_map and number == 1 else []
            if is_map and number == 2:
                parts = [part for field, _, part in fields(content) if field in (3, 4)]
            items += bool(parts)
            for part in parts:
                bound = self.bound(part, variables).flat()
                size, inside = size + _SCALAR + bound.size, inside.or_(bound)
        self._charge(10 + items)
        return Bound(size, items, inside)

    def _call(self, call: bytes, variables: Mapping[str, Bound]) -> Bound:
        name, parts = "", []
        for number, _, content in fields(call):
            if number == 2:
                name = content.decode()
            elif number in (1, 3):
                parts.append(content)
        operands = [self.bound(part, variables) for part in parts]
        if name in _LOOK_UPS:
            self._charge(1)
            return operands[0].found()
        sizes = [one.size for one in operands]
        cost = sum(sizes) // 10
        if name in _PRODUCTS:
            cost = max(cost, prod(1 + size // 10 for size in sizes))
        if name in _MATCHES:
            cost = (1 + sizes[0] // 10) * _instructions(parts[1])
        self._charge(1 + cost)
        result = _range(*parts) if name == "lists.range" else _result(name, operands)
        if name in self._in_python:
            kept = _KEPT_BYTES_A_CALL + sum(sizes) + result.size
            self.kept_bytes += kept * self._repeated
        return result

    def _loop(self, loop: bytes, variables: Mapping[str, Bound]) -> Bound:
        parts = {number: content for number, _, content in fields(loop)}
        over, accu = (self.bound(parts.get(number, b""), variables) for number in (2, 4))
        accu_name = parts[3].decode()
        inside = {
            **variables,
            **{parts[n].decode(): over.found() for n in (1, 8) if n in parts},
        }
        repeated, spent = self._repeated, (self.cost, self.kept_bytes)
        self._repeated = repeated * over.items
        for _ in range(over.items):
            # Each round counts for all of them, so only the last one does: no other costs more.
            self.cost, self.kept_bytes = spent
            inside[accu_name] = accu
            self.bound(parts.get(5, b""), inside)
            step = self.bound(parts.get(6, b""), inside)
            larger = accu.or_(step)
            if larger == accu:
                break
            accu = larger
        self._repeated = repeated
        return self.bound(parts.get(7, b""), {**variables, accu_name: accu})


def _instructions(expr: bytes) -> int:
    """Return the number of instructions that RE2 makes of a pattern: a thousand of ``a{1000}``.

    Each character of a text may cost a step for each of them. Raises ``Unbounded`` for a pattern
    that is computed.
    """
    import re2  # few expressions need it, and it takes 2 ms and 1.6 MiB

    options = re2.Options()
    options.log_errors = False  # it would write to stderr, past the log
    try:
        return int(re2.compile(_literal(expr, of_type=6), options).programsize)
    except re2.error:
        return _MAX_INSTRUCTIONS  # it takes as long to see that it is too large
    finally:
        re2.purge()  # the module keeps the last 128 patterns


def _range(number: bytes) -> Bound:
    """Return the bound of the list that ``lists.range`` makes; raises ``Unbounded``."""
    items = max(decode_int64(_literal(number, of_type=3)), 0)
    return Bound(2 * _SCALAR * (1 + items), items, Bound(_SCALAR))


def _literal(expr: bytes, of_type: int) -> bytes:
    """Return the constant that an ``Expr`` is; raises ``Unbounded`` if it is none."""
    for number, _, constant in fields(expr):
        for kind, _, content in fields(constant) if number == 3 else ():
            if kind == of_type:
                return content
    raise Unbounded


def _result(name: str, operands: list[Bound]) -> Bound:
    """Return the bound of a function's result; raises ``Unbounded`` if it is unknown."""
    if name in _TO_SCALAR:
        return Bound(2 * _SCALAR)
    if name.startswith("format."):
        return Bound(100)
    if name in _ONE_OPERAND:
        return reduce(Bound.or_, operands, Bound(_SCALAR))
    sizes = [one.size for one in operands]
    total, count = sum(sizes), sum(one.flat().items for one in operands)
    if name == "_+_" and count:
        return Bound(total, count, operands[0].found().or_(operands[1].found()))
    if name in _NO_LARGER:
        return Bound(total + 64, count)
    match name:
        case "replace" if len(sizes) >= 3:
            return Bound(sizes[0] + (sizes[0] + 1) * sizes[2])
        case "join" if sizes:
            return Bound(total + count * (sizes[1] if len(sizes) > 1 else 0))
        case "split" | "findAll" if sizes:
            return Bound((1 + sizes[0]) * 2 * _SCALAR, 1 + sizes[0])
        case "format" if len(sizes) == 2:
            # %.1000f has a thousand digits; two bytes are the shortest way to ask for an operand.
            return Bound(sizes[0] + min(count, sizes[0] // 2) * 1100 + 8 * sizes[1])
        case "strings.quote" | "url" | "getQuery" | "validate":
            return Bound(4 * total + 1000, total)
    raise Unbounded
