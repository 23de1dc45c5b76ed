"""What evaluating an expression may take at most, known before it is evaluated.

cel-cpp counts no cost and limits no memory. Kubernetes' limit at run time, a cost of 1,000,000, is
not enough by itself: the cost of a call is known when its result is already there, and a text of
megabytes in which each character is replaced by hundreds becomes gigabytes in one call.

So an expression is walked once, with upper bounds in the place of values. A call of which we do not
know how large its result may be counts as unbounded. What is not surely small is evaluated in a
process of its own (``cel_process``).

Example: ``"aa".replace("a", "bcd")``. The operands have 2, 1 and 3 bytes, and the result at most
2 + (2 + 1) * 3 = 11: a replacement for each character and one more, for an empty first argument.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from math import prod
from typing import NamedTuple

from proreus.objects.protobuf import decode_int64, fields

MAX_COST = 100_000
"""About 10 ms; a tenth of what Kubernetes allows, beyond which its own limit may matter."""
MAX_BYTES = 2**20
MAX_KEPT_BYTES = 2**13
"""What an evaluation may leave behind, see ``keeps_little``: seven comparisons of quantities, whose
operands count with the most that a small device's may take."""
_KEPT_BYTES_A_CALL = 200

_MOST_CHARACTERS = 500
"""Of an expression that is not walked: one of them leaves little behind, whatever it calls."""

_MAX_VISITS = 20_000
_SCALAR = 8


class Bound(NamedTuple):
    """The most bytes that a value may take, and the most items that a list or map in it has.

    ``level``: how many look-ups lead to an attribute: 3 for ``device``; 0: it is no part of it.
    """

    size: int
    items: int = 0
    level: int = 0


class Unbounded(Exception):
    """Nothing is known, or too much would have to be computed."""


SMALL_DEVICE = Bound(2**13, 2**6, 3)
"""A device within the API's limits: 32 attributes and capacities, texts of 64 bytes."""
SMALL_VALUE = Bound(2**8)
"""One of its attributes."""
LARGE_DEVICE = Bound(2**18, 2**12, 3)
"""A device with lists as attributes (gate DRAListTypeAttributes)."""
BOUNDLESS_DEVICE = Bound(MAX_BYTES + 1, MAX_BYTES, 3)

_OF_ANY, _ROOT = 2, 4

_CALLS = re.compile(r"\b(\w++)\s*+\(")
"""Possessive and from the beginning of a word: a word of 10,000 letters is looked at once."""
_LOOK_UPS = ("_[_]", "_[?_]", "_?._")
_SURELY_SMALL = frozenset(
    """
    quantity isQuantity semver isSemver compareTo isGreaterThan isLessThan sign isInteger
    asInteger asApproximateFloat major minor patch startsWith endsWith contains matches size has
    includes int uint double bool
    """.split()  # noqa: SIM905
)
_TO_SCALAR = (_SURELY_SMALL - {"quantity", "semver"}) | frozenset(
    """
    _==_ _!=_ _<_ _<=_ _>_ _>=_ !_ _&&_ _||_ @in _-_ _*_ _/_ _%_ -_ @not_strictly_false
    __not_strictly_false__ indexOf lastIndexOf isSorted isIP isCIDR isURL ip.isCanonical family
    isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast containsIP
    containsCIDR prefixLength hasValue sets.contains sets.equivalent sets.intersects type
    timestamp duration getFullYear getMonth getHours getMinutes getSeconds
    """.split()  # noqa: SIM905
)
_NO_LARGER = frozenset(
    """
    _+_ _[_] _[?_] _?._ find lowerAscii upperAscii trim substring charAt reverse slice flatten
    first last sort sum min max optional.of optional.none optional.ofNonZeroValue value orValue or
    optional.unwrap unwrapOpt unwrap string bytes dyn quantity semver add sub ip cidr masked
    distinct getScheme getHost getHostname getPort getEscapedPath cel.@mapInsert
    """.split()  # noqa: SIM905
)
"""Results no larger than all operands together, and a few bytes."""
_PRODUCTS = frozenset(
    """
    contains indexOf lastIndexOf matches find findAll distinct sort sets.contains sets.equivalent
    sets.intersects @in includes
    """.split()  # noqa: SIM905
)
"""Time by the product of the operands rather than their sum, in the worst case."""


def is_surely_small(expression: str) -> bool:
    """Return whether an expression calls nothing that could make its values larger.

    For most expressions, this spares the walk.
    """
    if len(expression) > _MOST_CHARACTERS or "+" in expression:
        return False
    return all(name in _SURELY_SMALL for name in _CALLS.findall(expression))


def is_bounded(checked: bytes, device: Bound = SMALL_DEVICE) -> bool:
    """Return whether an expression is within ``MAX_COST`` and ``MAX_BYTES``.

    ``checked``: a ``cel.expr.CheckedExpr`` in an ``Any``, as cel-cpp serialises it.
    """
    walk = _Walk(device)
    return walk.through(checked) and walk.cost <= MAX_COST


def keeps_little(checked: bytes, in_python: Container[str]) -> bool:
    """Return whether evaluations leave behind no more than ``MAX_KEPT_BYTES`` each.

    cel-expr-python 0.1.3 never frees the arguments and the result of a function in Python. Whoever
    may create claims writes expressions: ``quantity("11…1")`` leaves 10 KB for each kind of device.
    ``in_python``: the names of these functions. Devices count as small ones, for whoever may create
    claims does not make them.
    """
    walk = _Walk(SMALL_DEVICE, in_python)
    return walk.through(checked) and walk.kept_bytes <= MAX_KEPT_BYTES


class _Walk:
    """Computes bounds of all parts of one expression.

    ``cost``: about that of Kubernetes. ``kept_bytes``: of arguments and results of functions in
    Python.
    """

    def __init__(self, device: Bound, in_python: Container[str] = ()) -> None:
        self.cost = self.kept_bytes = 0
        self._in_python = in_python
        self._device = device
        self._value = SMALL_VALUE if device == SMALL_DEVICE else device._replace(level=0)
        self._visits = 0
        self._repeated = 1

    def through(self, checked: bytes) -> bool:
        """Walk through a ``cel.expr.CheckedExpr`` in an ``Any``; return whether all has bounds."""
        try:
            for place, _, content in fields(checked):
                for number, _, expr in fields(content) if place == _OF_ANY else ():
                    if number == _ROOT:
                        self.bound(expr, {})
        except (Unbounded, RecursionError):
            return False
        return True

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
            return self._device._replace(level=2 if field else 3)
        return variables.get(name, Bound(_SCALAR))

    def _select(self, select: bytes, variables: Mapping[str, Bound]) -> Bound:
        self._charge(1)
        bound = Bound(_SCALAR)
        for number, _, content in fields(select):
            if number == 1:
                bound = self._inside(self.bound(content, variables))
            elif number == 3 and decode_int64(content):
                return Bound(_SCALAR)  # has()
        return bound

    def _collection(self, collection: bytes, variables: Mapping[str, Bound], is_map: bool) -> Bound:
        size, items, inner = _SCALAR, 0, 0
        for number, _, content in fields(collection):
            parts = [content] if not is_map and number == 1 else []
            if is_map and number == 2:
                parts = [part for field, _, part in fields(content) if field in (3, 4)]
            items += bool(parts)
            for part in parts:
                bound = self.bound(part, variables)
                size, inner = size + _SCALAR + bound.size, max(inner, bound.items)
        self._charge(10 + items)
        return Bound(size, max(items, inner))

    def _call(self, call: bytes, variables: Mapping[str, Bound]) -> Bound:
        name, operands = "", []
        for number, _, content in fields(call):
            if number == 2:
                name = content.decode()
            elif number in (1, 3):
                operands.append(self.bound(content, variables))
        sizes = [one.size for one in operands]
        cost = sum(sizes) // 10
        if name in _PRODUCTS:
            cost = max(cost, prod(1 + size // 10 for size in sizes))
        self._charge(1 + cost)
        if name in _LOOK_UPS and operands[0].level:
            return self._inside(operands[0])
        result = _result(name, operands)
        if name in self._in_python:
            kept = _KEPT_BYTES_A_CALL + sum(sizes) + result.size
            self.kept_bytes += kept * self._repeated
        return result

    def _inside(self, bound: Bound) -> Bound:
        """Return the bound of what a look-up finds."""
        if bound.level == 1:
            return self._value
        return bound._replace(level=max(bound.level - 1, 0))

    def _loop(self, loop: bytes, variables: Mapping[str, Bound]) -> Bound:
        parts = {number: content for number, _, content in fields(loop)}
        over, accu = (self.bound(parts.get(number, b""), variables) for number in (2, 4))
        accu_name = parts[3].decode()
        inside = {
            **variables,
            **{parts[n].decode(): self._inside(over) for n in (1, 8) if n in parts},
        }
        repeated, spent = self._repeated, (self.cost, self.kept_bytes)
        self._repeated = repeated * over.items
        for _ in range(over.items):
            # Each round counts for all of them, so only the last one does: no other costs more.
            self.cost, self.kept_bytes = spent
            inside[accu_name] = accu
            self.bound(parts.get(5, b""), inside)
            step = self.bound(parts.get(6, b""), inside)
            larger = Bound(max(accu.size, step.size), max(accu.items, step.items))
            if larger == accu:
                break
            accu = larger
        self._repeated = repeated
        return self.bound(parts.get(7, b""), {**variables, accu_name: accu})


def _result(name: str, operands: list[Bound]) -> Bound:
    """Return the bound of a function's result; raises ``Unbounded`` for one that is not known."""
    sizes = [one.size for one in operands]
    total, count = sum(sizes), sum(one.items for one in operands)
    if name in _TO_SCALAR:
        return Bound(2 * _SCALAR)
    if name.startswith("format."):
        return Bound(100)
    if name in _NO_LARGER:
        return Bound(total + 64, count)
    match name:
        case "_?_:_":
            levels = [one.level for one in operands[1:]]
            return Bound(max(sizes), count, max(levels) if all(levels) else 0)
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
