"""Texts that leave the process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.base.utf8 import to_valid_utf8


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("a", "a"),
        ("für \U0001f600", "für \U0001f600"),
        ("a\ud800b\udfff", "a\ufffdb\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
    ],
)
def test_lone_surrogates_are_replaced(text: str, valid: str) -> None:
    assert to_valid_utf8(text) == valid


@given(st.text(st.characters(codec=None, categories=None)))
def test_every_text_can_be_encoded_and_valid_ones_are_kept(text: str) -> None:
    valid = to_valid_utf8(text)
    assert len(valid.encode()) >= len(valid)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert valid is text
