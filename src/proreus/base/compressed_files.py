"""Reads files that may be gzipped, in pieces, and refuses files that expand too much.

A megabyte of gzip can hold a gigabyte. The objects of a cluster are 5 to 30 times as large as their
gzip data, and 70 times if they differ in their names alone. Data that is large, and more than 200
times as large as the part of the file that was read, is something else. gzip is recognised by its
first bytes, not by the name of the file.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from proreus.base.errors import ConfigError

GZIP = b"\x1f\x8b"
MAX_RATIO = 200
MAX_BYTES = 1024 * 1024 * 1024
"""The largest size of a file that is read as a whole: a million pods."""
MAX_LINE_BYTES = 64 * 1024 * 1024

_LARGE_BYTES = 32 * 1024 * 1024
"""The size from which on the ratio counts."""
_PIECE_BYTES = 1024 * 1024
_GZIP_WINDOW = 31


def read(path: Path) -> bytes:
    """Return the content of a file, ``-`` being standard input; raises ``ConfigError``."""
    gunzip = _Gunzip(path)
    pieces, size = [], 0
    for piece in _contents(path, gunzip):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            raise ConfigError(f"{path}: the content is larger than {MAX_BYTES:,} bytes")
    if gunzip.incomplete:
        raise _cut(path)
    return b"".join(pieces)


def lines(path: Path, *, may_be_cut: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not empty, with their numbers; raises ``ConfigError``.

    ``may_be_cut``: whether the end of the gzip data may be missing, as after a crash. A line that
    was not written to its end is left out then.
    """
    gunzip = _Gunzip(path)
    number, rest = 0, b""
    for piece in _contents(path, gunzip):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield number, line
        if len(rest) > MAX_LINE_BYTES:
            raise ConfigError(f"{path}, line {number + 1}: longer than {MAX_LINE_BYTES:,} bytes")
    if gunzip.incomplete:
        if not may_be_cut:
            raise _cut(path)
    elif rest.strip():
        yield number + 1, rest


def _contents(path: Path, gunzip: _Gunzip) -> Iterator[bytes]:
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            piece = file.read(_PIECE_BYTES)
            zipped = piece.startswith(GZIP)
            while piece:
                if zipped:
                    yield from gunzip.pieces(piece)
                else:
                    yield piece
                piece = file.read(_PIECE_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None


def _cut(path: Path) -> ConfigError:
    return ConfigError(f"{path}: the gzip data is damaged: its end is missing")


class _Gunzip:
    """Decompresses a file that consists of one or several members, within the limits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken = self._given = 0
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self.incomplete = False
        """Whether the last member has not ended."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the contents of the next part of the file; raise ``ConfigError``."""
        before = self._taken
        size = len(data)
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding between members
                if not data:
                    return
                self._member = zlib.decompressobj(_GZIP_WINDOW)
            self.incomplete = True
            try:
                piece = self._member.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                text = f"{self._path}: the gzip data is damaged: {error}"
                raise ConfigError(text) from None
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            self.incomplete = not self._member.eof
            self._taken = before + size - len(data)
            self._given += len(piece)
            self._check_size()
            yield piece

    def _check_size(self) -> None:
        if self._given > max(_LARGE_BYTES, MAX_RATIO * self._taken):
            raise ConfigError(
                f"{self._path}: the gzip data expands to more than {MAX_RATIO} times its size, "
                "which no list of objects does"
            )
