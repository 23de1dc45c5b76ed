"""Plain HTTP without authentication: on loopback, for pages of this machine."""

import pytest

from proreus.base.errors import ConfigError
from proreus.server.local_server import names_loopback, parse_local_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:10260", ("127.0.0.1", 10260)),
        ("[::1]:1", ("::1", 1)),
        ("localhost:0", ("localhost", 0)),
        ("127.1.2.3:80", ("127.1.2.3", 80)),
    ],
)
def test_addresses(text, address):
    assert parse_local_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0:10260",
        "[::]:1",
        "10.0.0.1:1",
        "example.org:1",
        "127.0.0.1",
        ":1",
        "127.0.0.1:x",
        "127.0.0.1:70000",
    ],
)
def test_only_loopback_is_an_address(text):
    with pytest.raises(ConfigError, match="is not a loopback address"):
        parse_local_address(text)


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("127.0.0.1:10260", True),
        ("localhost:10260", True),
        ("LOCALHOST", True),
        ("[::1]:5", True),
        ("127.0.0.1", True),
        ("rebound.example:10260", False),
        ("127.0.0.1.example:10260", False),
        ("10.0.0.1:80", False),
        ("", False),
    ],
)
def test_names_of_loopback(host, named):
    assert names_loopback(host) is named
