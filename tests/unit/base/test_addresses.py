"""Addresses as text."""

from __future__ import annotations

import pytest

from proreus.base.addresses import authority


@pytest.mark.parametrize(
    ("host", "text"), [("127.0.0.1", "127.0.0.1:80"), ("::", "[::]:80"), ("", ":80")]
)
def test_an_ipv6_address_is_in_brackets(host: str, text: str) -> None:
    assert authority(host, 80) == text
