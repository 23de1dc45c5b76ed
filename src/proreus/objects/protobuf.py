"""The wire format of protobuf: decodes and encodes the fields of a message.

The meaning of field numbers is known to the callers. Protobuf allows changing an object without
encoding its opaque parts anew, and kubectl uses it for some requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAGIC = b"k8s\x00"
"""The prefix of an object in the apiserver's envelope (``runtime.Unknown``)."""

VARINT, BYTES = 0, 2
"""Wire types."""

Field = tuple[int, int, bytes]
"""Number, wire type and content, the latter without a length prefix."""


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message in order; raises ``ValueError`` for an invalid message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        start = at
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 2:
                length, start = _varint(data, at)
                at = start + length
            case 5:
                at += 4
            case kind:
                raise ValueError(f"wire type {kind} is not one of protobuf's")
        if at > len(data):
            raise ValueError("the object is cut off")
        yield tag >> 3, tag & 7, data[start:at]


def decode_int64(content: bytes) -> int:
    """Return the signed 64-bit value of a varint field."""
    value, _ = _varint(content, 0)
    return value - (1 << 64) if value >> 63 else value


def encode_message(message: Iterable[Field]) -> bytes:
    """Return the message with these fields."""
    parts = []
    for number, kind, content in message:
        parts.append(_as_varint(number << 3 | kind))
        if kind == BYTES:
            parts.append(_as_varint(len(content)))
        parts.append(content)
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("the object is cut off")


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
