"""JSON that msgspec refuses and Go does not, made readable: on the way of failures only.

The apiserver keeps some values as the bytes that a client sent (``managedFields[].fieldsV1``,
``opaque.parameters``), and Go is more patient with them than msgspec is: bytes that are no UTF-8
and halves of surrogate pairs become U+FFFD, numbers may have any size, and values nest up to 10,000
deep, where msgspec recurses even through what it skips and ends near Python's recursion limit.

``mend`` walks through the text without recursion. What nests deeper than any field that is read,
and numbers that no Python float holds, it takes out; ``Mended.restore`` puts them back, as text,
where a value was kept as text or as plain data.
"""

from __future__ import annotations

import codecs
import re
import secrets
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

DEEPEST = 100
"""How deep values may nest before they are taken out; typed fields do not reach half of it."""

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
_HARMLESS_DIGITS = 18
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Mended:
    """A text that msgspec reads, and what had to be taken out of it."""

    def __init__(self, text: bytes, pieces: list[bytes], mark: str) -> None:
        self.text = text
        self._pieces = pieces
        self._mark = mark
        self._marks = re.compile(rb'"' + mark.encode() + rb'(\d+)"')

    def restore(self, value: T) -> T:
        """Put back what was taken out of ``text``, from which ``value`` was decoded.

        It comes back as ``msgspec.Raw``, which is encoded as it is; fields of typed objects that
        are text themselves have it in place.
        """
        return value if not self._pieces else self._restored(value)

    def without_pieces(self, text: bytes) -> bytes:
        """Return JSON made of ``text`` with null for what was taken out."""
        return self._marks.sub(b"null", text)

    def _restored(self, value: Any) -> Any:
        if isinstance(value, str):
            if value.startswith(self._mark):
                return msgspec.Raw(self._pieces[int(value.removeprefix(self._mark))])
        elif isinstance(value, msgspec.Raw):
            return msgspec.Raw(self._marks.sub(self._piece, bytes(value)))
        elif isinstance(value, dict):
            return {key: self._restored(item) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            return type(value)(self._restored(item) for item in value)
        elif isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                old = getattr(value, name)
                new = self._restored(old)
                if new is not old:
                    # Not a change: nobody has seen the object yet.
                    msgspec.structs.force_setattr(value, name, new)
        return value

    def _piece(self, match: re.Match[bytes]) -> bytes:
        return self._pieces[int(match[1])]


def mend(data: bytes) -> Mended:
    """Return JSON with everything replaced or taken out that msgspec cannot read and Go can.

    What is no JSON for either stays as wrong as it is. Linear in the length.
    """
    # Nobody who writes an object can know the mark, and so pretend that something was taken out.
    mark = secrets.token_hex(16) + ":"
    data = _as_go_reads(data)
    parts: list[bytes] = []
    pieces: list[bytes] = []
    depth = copied = start = 0

    def take_out(first: int, last: int) -> None:
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
                take_out(start, match.end())
            depth -= 1
        elif kind != _NUMBER:
            break  # a string that does not end: this is no JSON
        elif depth <= DEEPEST and _is_huge(match[0]):
            take_out(match.start(), match.end())
    parts.append(data[copied:])
    return Mended(b"".join(parts), pieces, mark)


def _is_huge(number: bytes) -> bool:
    if len(number) <= _HARMLESS_DIGITS and b"e" not in number.lower():
        return False
    try:
        msgspec.json.decode(number)
    except msgspec.ValidationError:
        return True
    except (msgspec.DecodeError, ValueError):
        return False  # no number at all
    return False


def _as_go_reads(data: bytes) -> bytes:
    """Replace what is no Unicode by U+FFFD, as Go's encoding/json does: one a byte."""
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
