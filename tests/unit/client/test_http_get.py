from __future__ import annotations

from threading import get_ident

import pytest
from aiohttp import web

from proreus.base.errors import ApiError
from proreus.client.http import http_get as module
from proreus.client.http.http_get import http_get


@pytest.fixture
async def address():
    async def answer(request: web.Request) -> web.Response:
        status = int(request.query.get("status", "200"))
        return web.Response(status=status, text=request.headers.get("Authorization", "nobody"))

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield "http://{}:{}/".format(*runner.addresses[0][:2])
    await runner.cleanup()


async def get(url: str, **headers: str) -> bytes:
    return await http_get(url, headers=headers, timeout_seconds=5, insecure_skip_verify=False)


async def test_the_body_is_returned(address: str) -> None:
    assert await get(address) == b"nobody"
    assert await get(address, Authorization="Bearer t") == b"Bearer t"


async def test_aiohttp_is_imported_in_a_thread(address: str, monkeypatch) -> None:
    threads = []
    monkeypatch.setattr(module, "_import_aiohttp", lambda: threads.append(get_ident()))
    await get(address)
    assert len(threads) == 1
    assert threads != [get_ident()]


async def test_another_status_is_an_error(address: str) -> None:
    with pytest.raises(ApiError, match="answered 503") as raised:
        await get(f"{address}?status=503")
    assert raised.value.status == 503


async def test_no_answer_is_an_error_without_a_status() -> None:
    with pytest.raises(ApiError, match="cannot be read") as raised:
        await get("http://127.0.0.1:1/")
    assert raised.value.status == 0


async def test_a_large_body_is_refused(address: str, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 3)
    with pytest.raises(ApiError, match="more than 3 bytes"):
        await get(address)
