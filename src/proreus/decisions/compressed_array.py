"""Arrays of records that nobody may ever ask for again, kept as compressed bytes.

Columns of verdicts and scores have few different values: of 5,000 bytes a few hundred are left.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")

_LEAST_BYTES = 1024
_FASTEST = 1


class CompressedArray(msgspec.Struct, frozen=True, gc=False):
    """A one-dimensional array: its bytes, compressed, and the name of its dtype."""

    data: bytes
    dtype: str

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return len(self.data)


def compressed(value: T) -> T | CompressedArray:
    """Return an array compressed, unless that would gain little; anything else as it is."""
    if not isinstance(value, np.ndarray) or value.nbytes < _LEAST_BYTES:
        return value
    data = zlib.compress(value.tobytes(), _FASTEST)
    if 2 * len(data) > value.nbytes:
        return value
    return CompressedArray(data, sys.intern(value.dtype.str))


def decompressed(value: T | CompressedArray) -> T:
    """Return the array, read-only, of one that is compressed; anything else as it is."""
    if isinstance(value, CompressedArray):
        array: Any = np.frombuffer(zlib.decompress(value.data), dtype=value.dtype)
        return array  # type: ignore[no-any-return]
    return value
