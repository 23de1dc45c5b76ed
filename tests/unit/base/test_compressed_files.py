"""Files of others: gzipped or not, damaged, or of more than anybody has memory for."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from proreus.base import compressed_files
from proreus.base.errors import ConfigError

MIB = 1024 * 1024


def written(folder: Path, content: bytes) -> Path:
    path = folder / "file"
    path.write_bytes(content)
    return path


def bomb(bytes_: int) -> bytes:
    return gzip.compress(bytes(bytes_), 9)


@pytest.mark.parametrize("size", [0, 10, 3 * MIB])
def test_reads_what_was_written(tmp_path: Path, size: int) -> None:
    content = random.Random(1).randbytes(size)
    assert compressed_files.read(written(tmp_path, gzip.compress(content))) == content
    assert compressed_files.read(written(tmp_path, content)) == content


def test_reads_all_members(tmp_path: Path) -> None:
    content = gzip.compress(b"a\nb") + gzip.compress(b"\n\nc\n") + bytes(512)
    path = written(tmp_path, content)
    assert compressed_files.read(path) == b"a\nb\n\nc\n"
    assert list(compressed_files.lines(path)) == [(1, b"a"), (2, b"b"), (4, b"c")]


@pytest.mark.parametrize(
    "content",
    [
        bomb(33 * MIB),
        # What compresses badly in front of it does not hide it.
        gzip.compress(random.Random(2).randbytes(100_000)) + bomb(64 * MIB),
    ],
    ids=["alone", "second member"],
)
def test_a_bomb_is_refused(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content)
    for read in (compressed_files.read, lambda path: list(compressed_files.lines(path))):
        with pytest.raises(ConfigError, match=r"file: .* more than 200 times its size, which no"):
            read(path)


def test_a_bomb_is_not_expanded_before_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded = []

    class Decompress:
        def __init__(self, window: int) -> None:
            self._inner = zlib_decompressobj(window)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            piece = self._inner.decompress(data, most)
            expanded.append(len(piece))
            return piece

    zlib_decompressobj = compressed_files.zlib.decompressobj
    monkeypatch.setattr(compressed_files.zlib, "decompressobj", Decompress)
    with pytest.raises(ConfigError, match="200 times"):
        compressed_files.read(written(tmp_path, bomb(256 * MIB)))
    assert max(expanded) <= MIB
    assert sum(expanded) <= 33 * MIB


def test_a_file_that_repeats_itself_is_no_bomb(tmp_path: Path) -> None:
    lines = [b'{"kind":"Node","metadata":{"name":"node-%07d"}}' % n for n in range(800_000)]
    path = written(tmp_path, gzip.compress(b"\n".join(lines), 9))
    assert len(compressed_files.read(path)) > 32 * MIB


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (gzip.compress(b"x" * 1000)[:-12], "damaged: its end is missing"),
        (gzip.compress(b"x" * 1000)[:10] + b"\xff" * 20, "damaged: Error -3"),
        (gzip.compress(b"x") + b"rest", "damaged: Error -3"),
    ],
    ids=["cut", "garbled", "followed"],  # the data has the time in it
)
def test_damaged_data_is_refused(tmp_path: Path, content: bytes, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        compressed_files.read(written(tmp_path, content))


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_files, "MAX_LINE_BYTES", MIB)
    path = written(tmp_path, b"first\n" + bytes(3 * MIB))
    with pytest.raises(ConfigError, match=r"line 2: longer than 1,048,576 bytes"):
        list(compressed_files.lines(path))


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed_files, "MAX_BYTES", MIB)
    with pytest.raises(ConfigError, match="larger than 1,048,576 bytes"):
        compressed_files.read(written(tmp_path, bytes(2 * MIB)))


def test_the_last_line_of_a_plain_file_needs_no_line_break(tmp_path: Path) -> None:
    assert list(compressed_files.lines(written(tmp_path, b"a\nb"))) == [(1, b"a"), (2, b"b")]
    path = written(tmp_path, gzip.compress(b"a\nb"))
    assert list(compressed_files.lines(path)) == [(1, b"a"), (2, b"b")]


def test_lines_end_where_a_crash_has_cut_the_file(tmp_path: Path) -> None:
    content = gzip.compress(b"a\nb\n" + random.Random(3).randbytes(1_000))
    path = written(tmp_path, content[:-100])
    assert list(compressed_files.lines(path, may_be_cut=True))[:2] == [(1, b"a"), (2, b"b")]
    with pytest.raises(ConfigError, match="its end is missing"):
        list(compressed_files.lines(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*missing: No such file"):
        compressed_files.read(tmp_path / "missing")
