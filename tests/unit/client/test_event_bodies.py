"""The JSON of Events."""

import pytest

from proreus.base.clock import rfc3339
from proreus.client.writing.event_bodies import (
    micro_time,
    printf_without_arguments,
    truncate_note,
)


def test_notes_are_cut_to_1024_bytes():
    assert truncate_note("x" * 1024) == "x" * 1024
    assert truncate_note("x" * 1025) == "x" * 1020 + " ..."
    assert len(truncate_note("é" * 1000).encode()) == 1024
    assert len(truncate_note("a" + "é" * 1000).encode()) == 1023  # never half a character


@pytest.mark.parametrize(
    ("text", "mangled"),
    [
        ("0/5 nodes are available: 5 x.", "0/5 nodes are available: 5 x."),
        ("%d", "%!d(MISSING)"),
        ("100% sure", "100%! s(MISSING)ure".replace("! s", "!s")),
        ("%%", "%"),
        ("a%", "a%!(NOVERB)"),
        ("%-5.2fx", "%!f(MISSING)x"),
        ("%[1]d", "%!d(BADINDEX)"),
        ("%*d", "%!(BADWIDTH)%!d(MISSING)"),
    ],
)
def test_go_mangles_notes_that_look_like_a_format(text, mangled):
    assert printf_without_arguments(text) == mangled


def test_times():
    assert micro_time(1_800_000_000.5) == "2027-01-15T08:00:00.500000Z"
    assert rfc3339(1_800_000_000.9) == "2027-01-15T08:00:00Z"
