"""Add a finalizer to an object in protobuf, with all other bytes unchanged.

The apiserver compares the opaque parameters of a claim byte by byte. In an object sent back as JSON
they are serialized anew (whitespace, order of keys), which it rejects as a change of an immutable
field. So a claim with opaque parameters gets its finalizer in protobuf, where they are plain bytes:
a field is appended to the metadata, nothing else is touched.

Sources: k8s.io/apimachinery (``runtime.Unknown``, ``metav1.ObjectMeta``); field numbers are fixed.
"""

from __future__ import annotations

from proreus.objects.protobuf import BYTES, MAGIC, Field, encode_message, fields

_RAW_OF_UNKNOWN = 2
_METADATA_OF_OBJECT = 1
_FINALIZERS_OF_METADATA = 14
_RESOURCE_VERSION_OF_METADATA = 6


def add_finalizer(data: bytes, finalizer: str) -> bytes:
    """Return an object (wrapped in ``runtime.Unknown``, as the server sends it) with one finalizer
    more; raises ``ValueError`` if ``data`` is not such an object."""
    envelope = _envelope(data)
    obj = list(fields(_required_field(envelope, _RAW_OF_UNKNOWN)))
    meta = _required_field(obj, _METADATA_OF_OBJECT)
    meta += encode_message([(_FINALIZERS_OF_METADATA, BYTES, finalizer.encode())])
    raw = encode_message(_replaced(obj, _METADATA_OF_OBJECT, meta))
    return MAGIC + encode_message(_replaced(envelope, _RAW_OF_UNKNOWN, raw))


def resource_version(data: bytes) -> str:
    """Return the resourceVersion of an object in ``runtime.Unknown``."""
    obj = list(fields(_required_field(_envelope(data), _RAW_OF_UNKNOWN)))
    meta = list(fields(_required_field(obj, _METADATA_OF_OBJECT)))
    return _required_field(meta, _RESOURCE_VERSION_OF_METADATA).decode()


def _envelope(data: bytes) -> list[Field]:
    if not data.startswith(MAGIC):
        raise ValueError("this is not an object of the apiserver in protobuf")
    return list(fields(data[len(MAGIC) :]))


def _required_field(message: list[Field], number: int) -> bytes:
    for found, _, content in message:
        if found == number:
            return content
    raise ValueError(f"field {number} is missing")


def _replaced(message: list[Field], number: int, content: bytes) -> list[Field]:
    return [(n, kind, content if n == number else old) for n, kind, old in message]
