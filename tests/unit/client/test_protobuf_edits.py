"""A finalizer is added, and no other byte changes."""

from __future__ import annotations

import pytest

from proreus.client.writing.protobuf_edits import add_finalizer, resource_version


def field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field (of less than 16 KiB)."""
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + content


OPAQUE = b'{ "mode":   "fast", "a": 1.0 }' * 10
NAMED = field(1, b"claim") + field(6, b"42") + b"\x38\x07"  # generation 7, a varint
KIND = field(1, b"resource.k8s.io/v1") + field(2, b"ResourceClaim")


def enveloped(metadata: bytes) -> bytes:
    claim = field(1, metadata) + field(2, OPAQUE)
    return b"k8s\x00" + field(1, KIND) + field(2, claim) + field(3, b"") + field(4, b"")


@pytest.mark.parametrize("there", [b"", field(14, b"other")])
def test_nothing_but_the_finalizer_changes(there: bytes) -> None:
    added = add_finalizer(enveloped(NAMED + there), "mine/protection")
    assert added == enveloped(NAMED + there + field(14, b"mine/protection"))


def test_metadata_may_outgrow_its_length() -> None:
    long = field(1, b"n" * 120)
    assert add_finalizer(enveloped(long), "f" * 40) == enveloped(long + field(14, b"f" * 40))


def test_the_resource_version_is_read() -> None:
    assert resource_version(enveloped(NAMED)) == "42"


@pytest.mark.parametrize(
    "data", [b"{}", b"k8s\x00", enveloped(NAMED)[:-30], b"k8s\x00" + field(2, b"\x0f")]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"protobuf|missing|cut off"):
        add_finalizer(data, "f")
