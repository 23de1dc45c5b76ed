"""Plain HTTP without authentication: on loopback, for pages of this machine."""

import socket

import pytest

from proreus.dashboard import Dashboard
from proreus.dashboard.local_server import names_loopback, parse_local_address
from proreus.errors import ConfigError


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


async def test_a_name_that_resolves_to_loopback_is_not_served(browser):
    assert await browser.get("/dashboard/", headers={"Host": "rebound.example"}) == 421
    assert await browser.get("/dashboard/", headers={"Host": "localhost:1"}) == 200


async def test_it_leads_to_the_dashboard_and_to_nothing_else(browser):
    for path in ("/", "/dashboard"):
        assert await browser.get(path) == 307
        assert browser.headers["Location"] == "/dashboard/"
    for path in ("/metrics", "/configz", "/explain/queue"):
        assert await browser.get(path) == 404


async def test_a_port_in_use_is_said(world):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        dashboard = Dashboard(world.sources, taken.getsockname())
        with pytest.raises(ConfigError, match="failed to listen on 127"):
            await dashboard.start()
        await dashboard.stop()


async def test_a_page_that_fails_does_not_show_its_traceback(world, browser, monkeypatch):
    monkeypatch.setattr(world.sources.explainer, "queue_in_parts", lambda: 1 / 0)
    assert await browser.get("/dashboard/") == 500
    assert "ZeroDivisionError" not in browser.html
