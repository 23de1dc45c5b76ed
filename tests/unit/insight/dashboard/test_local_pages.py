"""The dashboard over plain HTTP without authentication: on loopback, for this machine."""

import asyncio
import socket
from urllib.parse import urlsplit

import pytest

from proreus.base.errors import ConfigError
from proreus.insight.dashboard import Dashboard
from proreus.server.connections import ConnectionLimits


async def test_a_name_that_resolves_to_loopback_is_not_served(browser):
    assert await browser.get("/dashboard/", headers={"Host": "rebound.example"}) == 421
    assert await browser.get("/dashboard/", headers={"Host": "localhost:1"}) == 200


async def test_it_leads_to_the_dashboard_and_to_nothing_else(browser):
    for path in ("/", "/dashboard"):
        assert await browser.get(path) == 307
        assert browser.headers["Location"] == "/dashboard/"
    for path in ("/metrics", "/configz", "/explain/queue"):
        assert await browser.get(path) == 404


async def test_one_address_has_as_many_connections_as_on_the_secure_port(world):
    dashboard = Dashboard(world.sources, ("localhost", 0))
    await dashboard.start()
    port = urlsplit(dashboard.local_url).port
    limit = ConnectionLimits.within_open_files().per_address
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(limit + 1)]
    try:
        # The oldest is closed to admit the last one.
        assert await asyncio.wait_for(held[0][0].read(), 10) == b""
        reader, writer = held[-1]
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 307")
    finally:
        for _, writer in held:
            writer.transport.abort()
        await dashboard.stop()


async def test_a_port_in_use_is_said(world):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        dashboard = Dashboard(world.sources, taken.getsockname())
        with pytest.raises(ConfigError, match="failed to listen on 127"):
            await dashboard.start()
        await dashboard.stop()


async def test_a_page_that_fails_does_not_show_its_traceback(world, browser, monkeypatch):
    monkeypatch.setattr(world.sources.explainer, "queue", lambda: 1 / 0)
    assert await browser.get("/dashboard/") == 500
    assert "ZeroDivisionError" not in browser.html
