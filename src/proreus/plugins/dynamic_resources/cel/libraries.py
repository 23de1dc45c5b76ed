"""The functions that Kubernetes adds to CEL: a table of overloads, with Kubernetes' types.

``environments`` declares them in its two environments, and names the libraries that cel-cpp
has itself: strings, lists, sets, optionals, bindings, macros of two variables. Of types that CEL
does not have, functions take and return bytes (``values``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from cel_expr_python import cel
from msgspec import Struct

from proreus.plugins.dynamic_resources.cel import addresses, formats, urls, values

Type = str | tuple["Type", ...]
"""A type's name, or a name and its parameters; a capital letter stands for any type."""

Q, V, IP, CIDR, URL, FORMAT = "quantity", "semver", "ip", "cidr", "url", "format"
BOOL, INT, DOUBLE, STRING, BYTES, DYN = "bool", "int", "double", "string", "bytes", "dyn"
STRINGS: Type = ("list", STRING)
LIST: Type = ("list", DYN)
MAP: Type = ("map", DYN, DYN)

OPAQUE_TYPES = {
    Q: "kubernetes.Quantity",
    V: "kubernetes.Semver",
    IP: "net.IP",
    CIDR: "net.CIDR",
    URL: "kubernetes.URL",
    FORMAT: "kubernetes.NamedFormat",
}
"""Kubernetes' names of the types that CEL does not have."""

# Durations and timestamps, too, in Kubernetes; functions in Python cannot return them to cel-cpp.
_SUMMABLE = (INT, "uint", DOUBLE)
_COMPARABLE = (*_SUMMABLE, BOOL, STRING, BYTES)

_MOST_VALUES = 48
"""The most values of a list attribute; ``includes`` fails for longer lists, as in Kubernetes."""


class Function(Struct, frozen=True):
    """One overload; ``member`` functions are called on their first argument."""

    name: str
    member: bool
    parameters: tuple[Type, ...]
    result: Type
    impl: Callable[..., Any]


def _accepted_by(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """Return a function that returns whether ``parse`` accepts a text."""

    def is_accepted(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return is_accepted


_OF_QUANTITIES = (
    Function("quantity", False, (STRING,), Q, values.quantity),
    Function("isQuantity", False, (STRING,), BOOL, values.is_quantity),
    Function("sign", False, (Q,), INT, values.sign),
    Function("isInteger", True, (Q,), BOOL, values.is_integer),
    Function("asInteger", True, (Q,), INT, values.as_integer),
    Function("asApproximateFloat", True, (Q,), DOUBLE, values.as_approximate_float),
    Function("add", True, (Q, Q), Q, values.add),
    Function("add", True, (Q, INT), Q, values.add),
    Function("sub", True, (Q, Q), Q, values.sub),
    Function("sub", True, (Q, INT), Q, values.sub),
)
_OF_VERSIONS = (
    Function("semver", False, (STRING,), V, values.semver),
    Function("semver", False, (STRING, BOOL), V, values.semver),
    Function("isSemver", False, (STRING,), BOOL, values.is_semver),
    Function("isSemver", False, (STRING, BOOL), BOOL, values.is_semver),
    Function("major", True, (V,), INT, values.major),
    Function("minor", True, (V,), INT, values.minor),
    Function("patch", True, (V,), INT, values.patch),
)
_OF_BOTH = tuple(
    Function(name, True, (kind, kind), result, impl)
    for kind in (Q, V)
    for name, result, impl in (
        ("compareTo", INT, values.compare_to),
        ("isLessThan", BOOL, lambda one, other: values.compare_to(one, other) < 0),
        ("isGreaterThan", BOOL, lambda one, other: values.compare_to(one, other) > 0),
    )
)
_OF_ADDRESSES = (
    Function("ip", False, (STRING,), IP, addresses.ip),
    Function("isIP", False, (STRING,), BOOL, _accepted_by(addresses.ip)),
    Function("ip.isCanonical", False, (STRING,), BOOL, addresses.is_canonical),
    Function("family", True, (IP,), INT, addresses.family),
    Function("isUnspecified", True, (IP,), BOOL, addresses.is_unspecified),
    Function("isLoopback", True, (IP,), BOOL, addresses.is_loopback),
    Function("isLinkLocalMulticast", True, (IP,), BOOL, addresses.is_link_local_multicast),
    Function("isLinkLocalUnicast", True, (IP,), BOOL, addresses.is_link_local_unicast),
    Function("isGlobalUnicast", True, (IP,), BOOL, addresses.is_global_unicast),
    Function("cidr", False, (STRING,), CIDR, addresses.cidr),
    Function("isCIDR", False, (STRING,), BOOL, _accepted_by(addresses.cidr)),
    Function("containsIP", True, (CIDR, IP), BOOL, addresses.contains_ip),
    Function("containsIP", True, (CIDR, STRING), BOOL, addresses.contains_ip),
    Function("containsCIDR", True, (CIDR, CIDR), BOOL, addresses.contains_cidr),
    Function("containsCIDR", True, (CIDR, STRING), BOOL, addresses.contains_cidr),
    Function("ip", True, (CIDR,), IP, addresses.ip_of_cidr),
    Function("prefixLength", True, (CIDR,), INT, addresses.prefix_length),
    Function("masked", True, (CIDR,), CIDR, addresses.masked),
)
_OF_URLS = (
    Function("url", False, (STRING,), URL, urls.url),
    Function("isURL", False, (STRING,), BOOL, _accepted_by(urls.request_url)),
    Function("getScheme", True, (URL,), STRING, urls.scheme),
    Function("getHost", True, (URL,), STRING, urls.host),
    Function("getHostname", True, (URL,), STRING, urls.hostname),
    Function("getPort", True, (URL,), STRING, urls.port),
    Function("getEscapedPath", True, (URL,), STRING, urls.escaped_path),
    Function("getQuery", True, (URL,), ("map", STRING, STRINGS), urls.query),
)


def _constant(value: bytes) -> Callable[[], bytes]:
    return lambda: value


_OF_FORMATS = (
    Function("format.named", False, (STRING,), ("optional", FORMAT), formats.named),
    Function("validate", True, (FORMAT, STRING), ("optional", STRINGS), formats.validate),
    *(
        Function(f"format.{name}", False, (), FORMAT, _constant(formats.format_value(name)))
        for name in formats.FORMATS
    ),
)


# ---- regular expressions -----------------------------------------------------------------------

_PRIVATE_USE = range(0xE000, 0xF900)
"""Characters without a meaning, to mark matches with."""


def _find(text: str, pattern: str) -> str:
    """Return the first match, or an empty text; raises ``ValueError`` for a bad pattern."""
    found = _find_all(text, pattern)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return the matches, at most ``limit`` if not negative; raises ``ValueError``."""
    # RE2, as in Kubernetes, takes linear time. Python's engine backtracks: whoever may create a
    # claim could keep the scheduler busy for ever with one pattern. cel-cpp exposes RE2 only in
    # functions that do not return all matches, so ``regex.replace`` puts marks around each match.
    begin, end = islice((chr(code) for code in _PRIVATE_USE if chr(code) not in text), 2)
    marked = _replacement().eval(
        data={"text": text, "pattern": pattern, "marked": rf"{begin}\0{end}"}
    )
    if marked.type() == cel.Type.ERROR:
        raise ValueError(f"Illegal regex: {marked.value()}")
    _, *parts = marked.value().split(begin)
    found = [part.partition(end)[0] for part in parts]
    return found if limit < 0 else found[:limit]


@lru_cache(maxsize=1)
def _replacement() -> cel.Expression:
    extensions = cel.NewEnvConfigFromYaml("extensions: [{name: regex}, {name: optional}]")
    names = dict.fromkeys(("text", "pattern", "marked"), cel.Type.STRING)
    environment = cel.NewEnv(config=extensions, variables=names)
    return environment.compile("regex.replace(text, pattern, marked)")


# ---- lists -------------------------------------------------------------------------------------


def _items(items: Sequence[Any]) -> list[Any]:
    """Return the items of a list, bytes as ``bytes``."""
    # cel-cpp passes bytes in lists as bytearrays, which it does not accept as a result.
    return [bytes(item) if isinstance(item, bytearray) else item for item in items]


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(items[i] <= items[i + 1] for i in range(len(items) - 1))


def _min(items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(_items(items))


def _max(items: Sequence[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(_items(items))


def _is_equal(one: Any, other: Any) -> bool:
    """Compare as CEL does: true and 1 differ, 1 and 1.0 do not."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _places(items: Sequence[Any], wanted: Any) -> Iterator[int]:
    [wanted] = _items([wanted])
    return (at for at, item in enumerate(_items(items)) if _is_equal(item, wanted))


def _index_of(items: Sequence[Any], wanted: Any) -> int:
    return next(_places(items, wanted), -1)


def _last_index_of(items: Sequence[Any], wanted: Any) -> int:
    return max(_places(items, wanted), default=-1)


def _includes(value: Any, wanted: Any) -> bool:
    """Return whether a value equals the wanted one, or is a list that has it."""
    # Selectors written for a single value go on working when the driver publishes a list
    # (gate DRAListTypeAttributes); the function is there with the gate off as well.
    if not isinstance(value, list | tuple):
        return _is_equal(value, wanted)
    if len(value) > _MOST_VALUES:
        raise ValueError(
            f"'includes' function cannot be applied to lists longer than {_MOST_VALUES} values"
        )
    return _index_of(value, wanted) >= 0


_OF_TEXTS_AND_LISTS = (
    Function("find", True, (STRING, STRING), STRING, _find),
    Function("findAll", True, (STRING, STRING), STRINGS, _find_all),
    Function("findAll", True, (STRING, STRING, INT), STRINGS, _find_all),
    Function("includes", True, (DYN, DYN), BOOL, _includes),
    *(Function("sum", True, (("list", kind),), kind, sum) for kind in _SUMMABLE),
    *(
        Function(name, True, (("list", kind),), result or kind, impl)
        for kind in _COMPARABLE
        for name, result, impl in (
            ("isSorted", BOOL, _is_sorted),
            ("min", "", _min),
            ("max", "", _max),
        )
    ),
)

FUNCTIONS = (
    *_OF_QUANTITIES,
    *_OF_VERSIONS,
    *_OF_BOTH,
    *_OF_ADDRESSES,
    *_OF_URLS,
    *_OF_FORMATS,
    *_OF_TEXTS_AND_LISTS,
)
"""Functions whose names cel-cpp does not have."""

MORE_OVERLOADS = (
    Function("indexOf", True, (LIST, DYN), INT, _index_of),
    Function("lastIndexOf", True, (LIST, DYN), INT, _last_index_of),
)
"""Overloads of functions that cel-cpp's own libraries declare."""


# ---- functions of the evaluator only -----------------------------------------------------------


def _inserted(entries: Mapping[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if key in entries:
        raise ValueError(f"insert failed: key '{key}' already exists")
    return {**entries, key: value}


def _merged(entries: Mapping[Any, Any], others: Mapping[Any, Any]) -> dict[Any, Any]:
    merged = dict(entries)
    for key, value in others.items():
        merged = _inserted(merged, key, value)
    return merged


EVALUATOR_ONLY = (
    # cel-cpp expands the macros transformMap and transformMapEntry to calls of these functions,
    # which are missing in the runtime of cel-expr-python.
    Function("cel.@mapInsert", False, (MAP, DYN, DYN), MAP, _inserted),
    Function("cel.@mapInsert", False, (MAP, MAP), MAP, _merged),
)
