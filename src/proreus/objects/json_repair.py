"""Repairs JSON that Go accepts and msgspec refuses; used only after decoding has failed.

The apiserver keeps some values as the bytes that a client sent (``managedFields[].fieldsV1``,
``opaque.parameters``), and Go tolerates more in them than msgspec: invalid UTF-8 and halves of
surrogate pairs become U+FFFD, numbers may have any size, and values may nest 10,000 levels deep.
msgspec recurses even through values that it skips, up to about Python's recursion limit.

``repair_json`` scans the text without recursion. It cuts out values that nest deeper than any
typed field and numbers beyond a Python float. ``RepairedJson.restore`` inserts them again, as JSON
text, in fields that are kept as text or as plain data.
"""

from __future__ import annotations

import codecs
import os
import re
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

T = TypeVar("T")

DEEPEST = 100
"""The depth below which values are cut out; typed fields nest less than half as deep."""

_TOKENS = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([\[{])|([\]}])|(-?\d[\d.eE+-]*+)|(")', re.DOTALL
)
_OPENING, _CLOSING, _NUMBER = 1, 2, 3
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)
_SAFE_DIGITS = 18
"""Integers of so many characters fit into 64 bits."""

# One pattern for all marks, since ``re`` keeps hundreds of compiled patterns.
_MARKS = re.compile(rb'"([0-9a-f]{32}:)(\d+)"')

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class RepairedJson:
    """JSON that msgspec can decode, and the pieces that were cut out of it."""

    def __init__(self, text: bytes, pieces: list[bytes], mark: str) -> None:
        self.text = text
        self._pieces = pieces
        self._mark = mark

    def restore(self, value: T) -> T:
        """Insert the pieces into ``value``, which was decoded from ``text``.

        A piece becomes a ``msgspec.Raw``, which is encoded unchanged; in a field that is a ``Raw``
        itself, it is inserted into the text. Raises ``msgspec.ValidationError`` for a piece in a
        typed field: it is no text.
        """
        return value if not self._pieces else self._restored(value, True)

    def without_pieces(self, text: bytes) -> bytes:
        """Return ``text`` with null in the place of each piece."""
        return _MARKS.sub(lambda match: b"null" if self._is_own(match) else match[0], text)

    def _restored(self, value: Any, untyped: bool) -> Any:
        if isinstance(value, str):
            if value.startswith(self._mark):
                if not untyped:
                    raise msgspec.ValidationError("Expected `str`, got a number out of range")
                return msgspec.Raw(self._pieces[int(value.removeprefix(self._mark))])
        elif isinstance(value, msgspec.Raw):
            return msgspec.Raw(_MARKS.sub(self._piece, bytes(value)))
        elif isinstance(value, dict):
            return {key: self._restored(item, untyped) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            return type(value)(self._restored(item, untyped) for item in value)
        elif isinstance(value, msgspec.Struct):
            untyped_fields = _untyped_fields(type(value))
            for name in value.__struct_fields__:
                old = getattr(value, name)
                new = self._restored(old, name in untyped_fields)
                if new is not old:
                    # The Struct is frozen, but not yet published: nothing can have read it.
                    msgspec.structs.force_setattr(value, name, new)
        return value

    def _piece(self, match: re.Match[bytes]) -> bytes:
        return self._pieces[int(match[2])] if self._is_own(match) else match[0]

    def _is_own(self, match: re.Match[bytes]) -> bool:
        return match[1] == self._mark.encode()


@cache
def _untyped_fields(type_: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of the fields that take plain data of any type, or have it in them."""
    fields = msgspec.structs.fields(type_)
    return frozenset(field.name for field in fields if _takes_any(field.type))


def _takes_any(type_: Any) -> bool:
    return type_ is Any or type_ is object or any(map(_takes_any, get_args(type_)))


def repair_json(data: bytes) -> RepairedJson:
    """Return JSON without the values that Go can decode and msgspec cannot.

    Text that is not JSON for Go either stays invalid. Takes time linear in the length.
    """
    # The mark is random, so that no object can contain a forged one.
    mark = os.urandom(16).hex() + ":"
    data = _as_go_reads(data)
    parts: list[bytes] = []
    pieces: list[bytes] = []
    depth = copied = start = 0

    def cut_out(first: int, last: int) -> None:
        nonlocal copied
        parts.append(data[copied:first] + f'"{mark}{len(pieces)}"'.encode())
        pieces.append(data[first:last])
        copied = last

    for match in _TOKENS.finditer(data):
        kind = match.lastindex
        if kind is None:
            continue  # a string
        if kind == _OPENING:
            depth += 1
            if depth == DEEPEST + 1:
                start = match.start()
        elif kind == _CLOSING:
            if depth == DEEPEST + 1:
                cut_out(start, match.end())
            depth -= 1
        elif kind != _NUMBER:
            break  # an unterminated string: not JSON
        elif depth <= DEEPEST and _is_huge(match[0]):
            cut_out(match.start(), match.end())
    parts.append(data[copied:])
    return RepairedJson(b"".join(parts), pieces, mark)


def _is_huge(number: bytes) -> bool:
    if len(number) <= _SAFE_DIGITS and b"e" not in number.lower():
        return False
    try:
        msgspec.json.decode(number)
    except msgspec.ValidationError:
        return True
    except (msgspec.DecodeError, ValueError):
        return False  # not a number
    return False


def _as_go_reads(data: bytes) -> bytes:
    """Replace each byte that is not Unicode by U+FFFD, as Go's encoding/json does."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors=_EACH_BYTE).encode()
    return _ESCAPES.sub(_whole_escape, data) if b"\\u" in data else data


def _whole_escape(match: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if match[1] else match[0]


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _REPLACEMENT * (error.end - error.start), error.end


_EACH_BYTE = "proreus.replace-each-byte"
codecs.register_error(_EACH_BYTE, _replace_each_byte)
