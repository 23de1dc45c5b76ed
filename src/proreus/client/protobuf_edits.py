"""A small change to an object in the apiserver's own bytes, all others left as they are.

The apiserver compares opaque parts of a spec byte by byte. Objects that travel as JSON come back
with such parts spelled anew (spaces, order of keys), which it takes for a change of an immutable
field. So a claim with opaque configuration gets its finalizer in protobuf, in which those parts are
bytes: append a field to the metadata, touch nothing else.

Sources: k8s.io/apimachinery (``runtime.Unknown``, ``metav1.ObjectMeta``); field numbers are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator

_MAGIC = b"k8s\x00"
_RAW_OF_UNKNOWN = 2
_METADATA_OF_OBJECT = 1
_FINALIZERS_OF_METADATA = 14
_RESOURCE_VERSION_OF_METADATA = 6
_BYTES = 2

Field = tuple[int, int, bytes]
"""Number, wire type, and content: of length-delimited fields without the length."""


def add_finalizer(data: bytes, finalizer: str) -> bytes:
    """Return an object, in the envelope in which the apiserver sends it, with one finalizer more.

    Raises ``ValueError`` for what is not such an object.
    """
    envelope = _envelope(data)
    obj = list(_fields(_only(envelope, _RAW_OF_UNKNOWN)))
    meta = _only(obj, _METADATA_OF_OBJECT)
    meta += _written([(_FINALIZERS_OF_METADATA, _BYTES, finalizer.encode())])
    raw = _written(_replaced(obj, _METADATA_OF_OBJECT, meta))
    return _MAGIC + _written(_replaced(envelope, _RAW_OF_UNKNOWN, raw))


def resource_version(data: bytes) -> str:
    """Return the resourceVersion of an object in its envelope."""
    obj = list(_fields(_only(_envelope(data), _RAW_OF_UNKNOWN)))
    meta = list(_fields(_only(obj, _METADATA_OF_OBJECT)))
    return _only(meta, _RESOURCE_VERSION_OF_METADATA).decode()


def _envelope(data: bytes) -> list[Field]:
    if not data.startswith(_MAGIC):
        raise ValueError("this is not an object of the apiserver in protobuf")
    return list(_fields(data[len(_MAGIC) :]))


def _only(fields: list[Field], number: int) -> bytes:
    for found, _, content in fields:
        if found == number:
            return content
    raise ValueError(f"field {number} is missing")


def _replaced(fields: list[Field], number: int, content: bytes) -> list[Field]:
    return [(n, kind, content if n == number else old) for n, kind, old in fields]


def _fields(data: bytes) -> Iterator[Field]:
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


def _written(fields: list[Field]) -> bytes:
    parts = []
    for number, kind, content in fields:
        parts.append(_as_varint(number << 3 | kind))
        if kind == _BYTES:
            parts.append(_as_varint(len(content)))
        parts.append(content)
    return b"".join(parts)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
